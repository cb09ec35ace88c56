-- Who was referred by whom, as events on the chain said: facts, in their order.
create table referral (
  user_address bytea not null check (octet_length(user_address) = 20),
  referrer_address bytea not null check (octet_length(referrer_address) = 20),
  block_number bigint not null,
  -- Of the log, in its block.
  log_index integer not null,
  linked_at timestamptz(3) not null,
  primary key (user_address, block_number, log_index)
);
create index referral_block on referral (block_number);

-- Balances that rules count (balance × time), up to the last change of each.
create table accrual (
  rule text not null,
  user_address bytea not null check (octet_length(user_address) = 20),
  balance numeric(98, 0) not null,
  -- The day (since 1970-01-01, UTC) that is not closed yet, and its balance · seconds until touched_at.
  day integer not null,
  balance_seconds numeric not null,
  touched_at timestamptz(3) not null,
  -- The log that changed it last, and its transaction.
  tx_hash bytea not null check (octet_length(tx_hash) = 32),
  touch integer not null,
  primary key (rule, user_address)
);
-- What is still to be closed, the oldest first.
create index accrual_open on accrual (day, rule, user_address) where balance > 0 or balance_seconds > 0;

-- What balances were before blocks that a fork may still undo; null where there was none.
create table accrual_before (
  block_number bigint not null,
  rule text not null,
  user_address bytea not null,
  balance numeric(98, 0),
  day integer,
  balance_seconds numeric,
  touched_at timestamptz(3),
  tx_hash bytea,
  touch integer,
  primary key (block_number, rule, user_address)
);
