-- The chain that this database belongs to: one row, written by the first follower.
create table chain (
  only_row boolean primary key default true check (only_row),
  chain_id bigint not null,
  genesis_hash bytea,
  start_number bigint,
  finalized_number bigint not null default 0
);

-- Canonical headers. The newest row is the cursor.
create table block (
  number bigint primary key,
  hash bytea not null check (octet_length(hash) = 32),
  parent_hash bytea not null check (octet_length(parent_hash) = 32),
  mined_at timestamptz not null,
  proved boolean not null,
  stored_at timestamptz not null
);

create table watcher (
  id bigint generated always as identity primary key,
  name text not null unique,
  created_at timestamptz not null
);

-- A key is found by the HMAC of its text and recovered for delivery from the ciphertext (AES-256-GCM).
create table api_key (
  id text primary key,
  watcher_id bigint not null references watcher,
  lookup bytea not null unique,
  ciphertext bytea not null,
  kek_id text not null,
  created_at timestamptz not null,
  revoked_at timestamptz
);
create index api_key_watcher on api_key (watcher_id, created_at desc);

-- All work of one shard for one webhook origin: what a delivery worker leases.
create table lane (
  id bigint generated always as identity primary key,
  shard_id bigint not null,
  origin text not null,
  next_due timestamptz,
  owner integer,
  epoch bigint not null default 0,
  lease_until timestamptz,
  unique (shard_id, origin)
);
create index lane_due on lane (next_due) where next_due is not null;
create index lane_owned on lane (owner) where owner is not null;

create table watched_address (
  shard_id bigint not null,
  id uuid not null,
  watcher_id bigint not null,
  lane_id bigint not null,
  address bytea not null check (octet_length(address) = 20),
  watch_coin boolean not null,
  watch_token boolean not null,
  webhook_url text not null,
  created_at timestamptz not null,
  updated_at timestamptz not null,
  primary key (shard_id, id)
);
create index watched_address_address on watched_address (address);
create index watched_address_listed on watched_address (shard_id, created_at, id);

-- kind: transaction (a transaction's own value), internal (a call's value), token (an ERC-20 Transfer log).
-- ordinal: the position inside the transaction, among those of its kind; for a token its index in the receipt.
-- state: held (waits for confirmations), waiting (has an attempt to come), processed (a 2xx came),
--        withdrawn (its block died before any attempt), cancelled (its record was deleted).
create table notification (
  shard_id bigint not null,
  id bigint generated always as identity,
  lane_id bigint not null,
  watched_address_id uuid not null,
  watcher_id bigint not null,
  kind text not null check (kind in ('transaction', 'internal', 'token')),
  tx_hash bytea not null check (octet_length(tx_hash) = 32),
  ordinal integer not null,
  sender bytea not null,
  receiver bytea,
  amount numeric(78, 0) not null,
  token bytea,
  block_number bigint not null,
  state text not null check (state in ('held', 'waiting', 'processed', 'withdrawn', 'cancelled')),
  retry_count integer not null default 0,
  next_retry_at timestamptz,
  next_attempt_at timestamptz not null,
  created_at timestamptz not null,
  processed_at timestamptz,
  primary key (shard_id, id),
  unique (shard_id, watched_address_id, tx_hash, kind, ordinal)
);
create index notification_due on notification (shard_id, lane_id, next_attempt_at, id) where state = 'waiting';
create index notification_open_block on notification (block_number) where state in ('held', 'waiting');
create index notification_processed on notification (processed_at) where state = 'processed';

create table delivery_attempt (
  shard_id bigint not null,
  id bigint generated always as identity,
  notification_id bigint not null,
  started_at timestamptz not null,
  duration_ms integer not null,
  outcome text not null,
  status integer,
  response text,
  primary key (shard_id, id)
);
create index delivery_attempt_notification on delivery_attempt (shard_id, notification_id, id);
create index delivery_attempt_started on delivery_attempt (started_at);
