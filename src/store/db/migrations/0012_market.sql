-- Swap pairs as their facts were made, and how far these reach.
create table pair (
  id integer primary key,
  address bytea not null unique check (octet_length(address) = 20),
  token0 bytea not null check (octet_length(token0) = 20),
  token1 bytea not null check (octet_length(token1) = 20),
  token0_decimals smallint not null,
  token1_decimals smallint not null,
  usd_value_from smallint not null check (usd_value_from in (0, 1)),
  -- From this block on nothing of the pair was missed; null while it is not in the configuration.
  followed_from bigint,
  -- The next block of the past to be read, downwards, and its hash; null when all is read.
  backfill_number bigint,
  backfill_hash bytea check (octet_length(backfill_hash) = 32),
  -- Blocks up to this time are not read.
  backfill_until timestamptz not null
);

-- Swap events. usd_value is frozen by the price that was in force; null until there was any.
create table swap (
  pair_id integer not null,
  block_number bigint not null,
  tx_hash bytea not null check (octet_length(tx_hash) = 32),
  ordinal integer not null,
  mined_at timestamptz not null,
  amount0_in numeric(78, 0) not null,
  amount1_in numeric(78, 0) not null,
  amount0_out numeric(78, 0) not null,
  amount1_out numeric(78, 0) not null,
  usd_value numeric,
  price_id bigint,
  primary key (block_number, tx_hash, ordinal)
);
create index swap_time on swap (pair_id, mined_at) include (usd_value);
create index swap_unvalued on swap (pair_id, block_number) where usd_value is null;

-- Sums of swap.usd_value over five minutes.
create table swap_volume (
  pair_id integer not null,
  started_at timestamptz not null,
  usd_value numeric not null,
  swap_count bigint not null,
  primary key (pair_id, started_at)
);

-- A pair at the end of each block that changed it: the newest row is its state. price is in units of the token that gives
-- the USD value, for one of the other; null without reserves.
create table pair_state (
  pair_id integer not null,
  block_number bigint not null,
  mined_at timestamptz not null,
  reserve0 numeric(78, 0) not null,
  reserve1 numeric(78, 0) not null,
  price numeric,
  -- What liquidity events of this block added to the supply, and the product of the reserves after the last one.
  supply_change numeric(78, 0) not null,
  liquidity_k numeric(78, 0),
  primary key (pair_id, block_number)
);
create index pair_state_block on pair_state (block_number);
create index pair_state_time on pair_state (pair_id, mined_at desc);
create index pair_state_liquidity on pair_state (pair_id, block_number) where liquidity_k is not null;

-- What the contracts said at the end of a block: supply, the k of the last liquidity event, whether a fee is minted.
create table pair_reading (
  pair_id integer not null,
  block_number bigint not null,
  total_supply numeric(78, 0) not null,
  k_last numeric(78, 0) not null,
  is_fee_on boolean not null,
  primary key (pair_id, block_number)
);
create index pair_reading_block on pair_reading (block_number);
