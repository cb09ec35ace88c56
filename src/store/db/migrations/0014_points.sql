-- Awards of points: facts. Without a block they were imported, and no fork undoes them.
create table point (
  id bigint generated always as identity,
  rule text not null,
  version integer not null,
  category text not null,
  user_address bytea not null check (octet_length(user_address) = 20),
  points numeric not null,
  tx_hash bytea not null check (octet_length(tx_hash) = 32),
  ordinal bigint not null,
  role text not null check (role in ('user', 'referrer')),
  block_number bigint,
  block_hash bytea check (octet_length(block_hash) = 32),
  awarded_at timestamptz(3) not null,
  inputs jsonb not null,
  primary key (tx_hash, ordinal, rule, version, role),
  check ((block_number is null) = (block_hash is null))
);
create index point_user on point (user_address, awarded_at, id);
create index point_block on point (block_number) where block_number is not null;

-- Sums of the facts, kept in the transactions that write them. A row is there exactly while there are facts for it.
create table point_day (
  user_address bytea not null,
  -- UTC.
  day date not null,
  category text not null,
  rule text not null,
  version integer not null,
  role text not null,
  points numeric not null,
  award_count bigint not null check (award_count > 0),
  primary key (user_address, day, category, rule, version, role)
);

create table point_month (
  -- Its first day.
  month date not null,
  user_address bytea not null,
  points numeric not null,
  award_count bigint not null check (award_count > 0),
  -- The leaderboard's order is ascending in it, so that one comparison of rows finds where a page begins.
  minus_points numeric not null generated always as (-points) stored,
  -- The leaderboard's entry (spec 2.1) as JSON.
  entry text not null generated always as (
    '{"user":"0x' || encode(user_address, 'hex') || '","points":' || trim_scale(points)::text || '}') stored,
  primary key (month, user_address)
);
create index point_month_leaders on point_month (month, minus_points, user_address) include (entry) where points <> 0;
