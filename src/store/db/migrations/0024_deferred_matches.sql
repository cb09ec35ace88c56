-- Matches of a block whose notifications are written after it: of one watcher, one address, and up to some hundred records.
-- `matches` are the transfers; `is_met`: some of their transactions had notifications before the block.
create table deferred_match (
  id bigint generated always as identity primary key,
  watcher_id bigint not null,
  block_number bigint not null,
  address bytea not null check (octet_length(address) = 20),
  record_ids uuid[] not null,
  matches jsonb not null,
  is_met boolean not null
);
create index deferred_match_watcher on deferred_match (watcher_id, id);
create index deferred_match_block on deferred_match (block_number);
