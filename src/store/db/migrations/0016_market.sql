-- The last good answer about the supply: given while no node answers, after a restart too.
create table supply_reading (
  only_row boolean primary key default true check (only_row),
  read_at timestamptz not null,
  block_number bigint not null,
  block_hash bytea not null check (octet_length(block_hash) = 32),
  -- scheme://host
  node_name text not null,
  method text not null check (method in ('multicall3', 'eth_getBalance'))
);
-- The newest balance of each address that was given, of the reading or of one before it.
create table supply_balance (
  address bytea primary key check (octet_length(address) = 20),
  wei numeric(78, 0) not null,
  read_at timestamptz not null
);
