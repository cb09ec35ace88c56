-- The followed chain.

create table chain (
  only_row boolean primary key default true check (only_row),
  chain_id bigint not null,
  genesis_hash bytea,
  start_number bigint,
  finalized_number bigint not null default 0,
  corroborated_number bigint,
  enforced_checks text[] not null default '{}',
  unproved_types text[] not null default '{}',
  has_traces boolean not null default false,
  timeline text
);
comment on table chain is 'The chain that this database belongs to: one row, written by the first follower';
comment on column chain.start_number is 'First followed block';
comment on column chain.corroborated_number is 'Newest block that a quorum of the nodes was seen to have; null until one was';
comment on column chain.enforced_checks is 'Proof checks that the chain was seen to honor, enforced after a restart too';
comment on column chain.unproved_types is 'Transaction types that the chain was seen to have, and that Chainbell cannot prove';
comment on column chain.has_traces is 'Whether a node has traced a stored block, so that nodes that do not answer may be those that can';
comment on column chain.timeline is
  'Timeline of the write-ahead log when a process began to follow. Another one shows that a standby was promoted, which may lack commits';

create table block (
  number bigint primary key,
  hash bytea not null check (octet_length(hash) = 32),
  parent_hash bytea not null check (octet_length(parent_hash) = 32),
  mined_at timestamptz not null,
  proved boolean not null,
  stored_at timestamptz not null
);
comment on table block is 'Headers of the canonical chain. The newest one is the tip';
comment on column block.mined_at is 'Timestamp of the header';
comment on column block.proved is 'Whether its hash was checked against its contents';

create table reorg (
  id bigint generated always as identity primary key,
  happened_at timestamptz not null,
  ancestor_number bigint not null
);
comment on table reorg is 'Reorgs that orphaned stored blocks';
comment on column reorg.ancestor_number is 'Newest block that stayed';

create table orphaned_block (
  reorg_id bigint not null references reorg (id),
  number bigint not null,
  hash bytea not null check (octet_length(hash) = 32),
  primary key (reorg_id, number)
);
comment on table orphaned_block is 'Blocks that each reorg orphaned';

-- Watchers, their keys and records.

create table watcher (
  id bigint generated always as identity primary key,
  name text not null unique,
  created_at timestamptz not null,
  suspended_at timestamptz,
  deleting_at timestamptz,
  signs_v1a boolean not null default false,
  slices smallint not null default 1 check (slices between 1 and 256),
  check (id between 1 and 1099511627775)
);
comment on table watcher is 'Tenants: each owns API keys and watched addresses';
comment on column watcher.suspended_at is 'Since then its keys are refused and nothing is sent; null while it is active';
comment on column watcher.deleting_at is 'Since then it is being deleted, in batches';
comment on column watcher.slices is
  'Slices among which its new records are spread. Each has a shard: shard_id is the watcher''s id plus 2^40 times the slice';
comment on column watcher.signs_v1a is 'Whether its webhooks are also signed with ed25519';

create table incoming_move (
  only_row boolean primary key default true check (only_row),
  began_at timestamptz not null,
  completed_at timestamptz
);
comment on table incoming_move is 'The move of an embedded database to this one: one row or none';
comment on column incoming_move.completed_at is 'Null until everything is copied: no service may start here before';

create table api_key (
  id text primary key,
  watcher_id bigint not null references watcher,
  lookup bytea not null unique,
  ciphertext bytea not null,
  kek_id text not null,
  created_at timestamptz not null,
  revoked_at timestamptz,
  expires_at timestamptz
);
create index api_key_watcher on api_key (watcher_id, created_at desc);
create index api_key_kek on api_key (kek_id);
comment on table api_key is 'API keys, without their text';
comment on column api_key.lookup is 'HMAC of the key, by which a request finds it';
comment on column api_key.ciphertext is 'The key for the Authorization header of webhooks (AES-256-GCM)';
comment on column api_key.kek_id is 'Key-encryption key of the ciphertext';
comment on column api_key.revoked_at is 'The key is refused from then on; in the future while a rotated key overlaps with its successor';
comment on column api_key.expires_at is
  'End of that overlap; null for a key that was not rotated with one. revoked_at is the same unless the key was revoked earlier';

create table signing_secret (
  watcher_id bigint not null,
  number integer not null,
  ciphertext bytea not null,
  kek_id text not null,
  created_at timestamptz not null,
  ends_at timestamptz,
  primary key (watcher_id, number)
);
create index signing_secret_kek on signing_secret (kek_id);
comment on table signing_secret is 'Secrets that sign the webhooks of a watcher';
comment on column signing_secret.ciphertext is 'An HMAC key and an ed25519 private key (AES-256-GCM)';
comment on column signing_secret.ends_at is 'Null for the newest; a rotation sets it for the others';

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
  confirmations integer,
  direction text check (direction in ('in', 'out')),
  min_amount numeric(78, 0),
  tokens jsonb check (tokens <> '{}'),
  removed boolean not null default false,
  strict_order boolean not null default false,
  primary key (shard_id, id)
);
create index watched_address_address on watched_address (address);
create index watched_address_listed on watched_address (shard_id, created_at, id);
comment on table watched_address is
  'Records: an address and the webhook URL for its transfers. Settings that are null or false keep the default behavior';
comment on column watched_address.id is 'Its last byte is its slice';
comment on column watched_address.lane_id is 'Delivery queue of the origin of webhook_url';
comment on column watched_address.confirmations is 'Confirmations to wait for; null: those of the configuration';
comment on column watched_address.min_amount is 'Smallest transfer of the native coin, in wei';
comment on column watched_address.tokens is 'Smallest amount by token contract; other tokens are left out';
comment on column watched_address.removed is 'Whether removal notices are sent';
comment on column watched_address.strict_order is 'Whether notifications are sent one after the other, in the order of the chain';

create table idempotent_answer (
  shard_id bigint not null,
  key text not null,
  part integer not null,
  digest bytea not null,
  answer text not null,
  created_at timestamptz not null,
  primary key (shard_id, key, part)
);
create index idempotent_answer_created on idempotent_answer (created_at);
comment on table idempotent_answer is
  'Responses to requests with an Idempotency-Key, stored in the transaction that did the work';
comment on column idempotent_answer.part is 'A long request is answered in several parts, each with its own transaction';
comment on column idempotent_answer.digest is 'Hash of the request, which must be the same when it is repeated';

-- Counts for limits.

create table record_counting (
  only_row boolean primary key default true check (only_row),
  is_counted boolean not null default false
);
insert into record_counting default values;
comment on table record_counting is 'One row: whether records are counted. Counting adds a small cost to each change';

create table watcher_usage (
  watcher_id bigint primary key,
  records bigint not null,
  origins bigint not null
) with (fillfactor = 50);
comment on table watcher_usage is 'Number of records of each watcher, and of receiver origins with records';

create table origin_usage (
  watcher_id bigint not null,
  origin text not null,
  records bigint not null,
  primary key (watcher_id, origin)
) with (fillfactor = 50);
comment on table origin_usage is 'Number of records of each watcher and receiver origin';

-- The address filter of the leading follower (docs/explanation/address-filter.md). Both tables are unlogged: PostgreSQL empties
-- them whenever it recovers from a log, so a mark never outlives the history that it belongs to.

create unlogged table address_filter (
  id uuid primary key,
  snapshot pg_snapshot not null,
  writer xid8 not null
) with (fillfactor = 50);
comment on table address_filter is
  'The filter that the leading follower holds in memory: one row or none. Changes of addresses are noted while there is one';
comment on column address_filter.snapshot is 'The filter has every watched address that is visible in this snapshot';
comment on column address_filter.writer is
  'Transaction that wrote this row. It differs from xmin in a copy of the row, whose snapshot belongs to another server';

create unlogged table address_change (
  xid xid8 not null,
  address bytea,
  removed_count integer not null default 0
);
create index address_change_xid on address_change (xid);
comment on table address_change is 'Changes of watched addresses that the filter may not have yet';
comment on column address_change.xid is 'Transaction of the change';
comment on column address_change.address is 'Address that a record got; null in a row that counts removed ones';
comment on column address_change.removed_count is 'Addresses that lost a record';

-- Delivery.

create table lane (
  id bigint generated always as identity primary key,
  shard_id bigint not null,
  watcher_id bigint not null,
  origin text not null,
  next_due timestamptz,
  owner integer,
  epoch bigint not null default 0,
  lease_until timestamptz,
  unique (shard_id, origin)
);
create index lane_owned on lane (owner) where owner is not null;
-- Excludes leased lanes, so that a lease doesn't scan them.
create index lane_watcher_due on lane (watcher_id, next_due) where next_due is not null and owner is null;
comment on table lane is 'Delivery queues: all work of one shard for one receiver origin. Workers lease them';
comment on column lane.next_due is 'When its next notification is due at the earliest; null while nothing is due';
comment on column lane.owner is 'Lock key of the worker that leases it; null while none does';
comment on column lane.epoch is 'Counts leases: results of an earlier lease are refused';

create table watcher_queue (
  watcher_id bigint primary key,
  next_due timestamptz,
  suspended boolean not null default false
) with (fillfactor = 50);
create index watcher_queue_due on watcher_queue (next_due) where next_due is not null and not suspended;
create index watcher_queue_suspended on watcher_queue (watcher_id) where suspended;
comment on table watcher_queue is
  'Watchers in the order in which workers visit them: the one visited longest ago first, each for a few lanes';
comment on column watcher_queue.next_due is
  'When the next visit is due: not after the earliest due time of its lanes without an owner';
comment on column watcher_queue.suspended is 'As watcher.suspended_at, for workers, which never read that table';

-- Notifications are written once, in the commit of their block, and delivery never updates them. `queue` has a row for each that
-- is not finished, and `ended` for each finished one that was not simply processed by its first attempt.
create sequence notification_id_seq;
create table notification (
  shard_id bigint not null,
  id bigint not null default nextval('notification_id_seq'),
  created_at timestamptz(3) not null,
  block_number bigint not null,
  ordinal integer not null,
  occurrence integer not null default 0,
  kind "char" not null check (kind in ('c', 'i', 't')),
  watched_address_id uuid not null,
  tx_hash bytea not null check (octet_length(tx_hash) = 32),
  sender bytea not null,
  receiver bytea,
  token bytea,
  amount numeric(78, 0) not null,
  replaces bigint,
  is_held boolean not null default false
) partition by range (created_at);
alter sequence notification_id_seq owned by notification.id;
-- Not unique, because a unique key would have to contain created_at. The sequence makes ids unique.
create index notification_id on notification (shard_id, id);
-- The record first, because the log of all watchers knows only its id.
create index notification_record on notification (watched_address_id, shard_id, id);
-- The last 4 bytes of a hash find the transaction in an index of less than half the size.
create index notification_transaction on notification (substr(tx_hash, 29));
-- BRIN indexes take a few pages, because rows are stored roughly in the order of their blocks and of their creation, and of their ids.
-- The one of ids is on an expression, so that only the log uses it: for rows of one shard it would read those of all.
create index notification_order on notification using brin ((id + 0)) with (pages_per_range = 32, autosummarize = on);
create index notification_block on notification using brin (block_number) with (autosummarize = on);
create index notification_created on notification using brin (created_at) with (autosummarize = on);
-- The step of retention creates partitions of some days each; this one has the rows that no other takes, for example after a clock was wrong.
create table notification_default partition of notification default;
create index notification_default_age on notification_default (created_at);
comment on table notification is 'Transfers of watched addresses. Partitioned by time of creation';
comment on column notification.kind is
  'c: the value of a transaction. i: the value of a call. t: an ERC-20 Transfer log';
comment on column notification.ordinal is
  'Position in the transaction, among transfers of its kind; of a token its index in the receipt';
comment on column notification.occurrence is 'Which of several equal transfers of one transaction this is, from 0 on';
comment on column notification.amount is 'In wei, or in the smallest unit of the token';
comment on column notification.is_held is
  'Whether it was held when it was created, so that the time until its delivery is not only that of the delivery';
comment on column notification.replaces is
  'Notification that this one replaces, after their transaction was mined again with other contents';

create table queue (
  shard_id bigint not null,
  id bigint not null,
  created_at timestamptz(3) not null,
  lane_id bigint not null,
  due_at timestamptz(3) not null,
  watched_address_id uuid not null,
  state text not null check (state in ('held', 'waiting')),
  release_number bigint,
  sequence bigint,
  next_retry_at timestamptz,
  retry_count integer not null default 0 check (retry_count >= 0),
  redelivery_count integer not null default 0,
  revision integer not null default 0,
  reorg_id bigint,
  tx_hash bytea,
  may_be_seen boolean not null default false,
  unsent_epoch bigint not null default 0,
  primary key (shard_id, id)
) with (
  -- Every row is deleted soon after it was written, so its table stays small only while vacuum keeps up.
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 50000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000
);
-- First attempts and retries have separate indexes, so that a million retries to a failing receiver don't delay first attempts.
create index queue_first on queue (shard_id, lane_id, due_at, id) where state = 'waiting' and retry_count = 0;
create index queue_retry on queue (shard_id, lane_id, due_at, id) where state = 'waiting' and retry_count > 0;
-- For the oldest pending notification of a failing receiver, and the most overdue retry of a watcher.
create index queue_retry_age on queue (shard_id, lane_id, id) where state = 'waiting' and retry_count > 0;
create index queue_retry_due on queue (shard_id, due_at) where state = 'waiting' and retry_count > 0;
create index queue_held on queue (release_number, shard_id) where state = 'held';
-- Waiting notifications of a record come first, then held ones in sequence, so one probe finds whether the next may be sent.
create index queue_sequence on queue (shard_id, watched_address_id, state desc, sequence) where sequence is not null;
create index queue_orphaned on queue (tx_hash) where reorg_id is not null;
create index queue_reorg on queue (reorg_id) where reorg_id is not null;
comment on table queue is 'Notifications that are not finished';
comment on column queue.created_at is 'As notification.created_at: finds its partition';
comment on column queue.state is
  'held: waits for confirmations or for its sequence. waiting: an attempt is due or scheduled';
comment on column queue.due_at is 'When its next attempt is due';
comment on column queue.release_number is 'Held until this block is stored; null once that was noticed';
comment on column queue.sequence is 'Position in the sequence of a record with strict_order';
comment on column queue.next_retry_at is 'When the retry schedule has its next attempt';
comment on column queue.redelivery_count is
  'Redeliveries of its message that its watcher requested. The outcome of an earlier delivery does not count for a later one';
comment on column queue.revision is
  '0: the notification as first sent. Odd: its block was orphaned after an attempt, and a removal notice is sent. Even: it was mined again';
comment on column queue.reorg_id is 'Reorg that orphaned the transfer; null while it is on the canonical chain';
comment on column queue.tx_hash is 'Its transaction, while reorg_id is set';
comment on column queue.may_be_seen is 'Whether an attempt may have reached the receiver';
comment on column queue.unsent_epoch is 'No lease of its lane up to this epoch can have sent it';

create table ended (
  shard_id bigint not null,
  id bigint not null,
  created_at timestamptz(3) not null,
  state text not null check (state in ('processed', 'withdrawn', 'cancelled')),
  ended_at timestamptz,
  sequence bigint,
  next_retry_at timestamptz,
  retry_count integer not null default 0,
  redelivery_count integer not null default 0,
  revision integer not null default 0,
  reorg_id bigint,
  tx_hash bytea,
  may_be_seen boolean not null default false,
  primary key (shard_id, id)
);
create index ended_created on ended (created_at);
create index ended_orphaned on ended (tx_hash) where reorg_id is not null;
create index ended_reorg on ended (reorg_id) where reorg_id is not null;
comment on table ended is
  'Finished notifications that were not simply processed: retried, redelivered, in strict order, orphaned, withdrawn or cancelled';
comment on column ended.state is
  'processed: the receiver answered 2xx. withdrawn: its block was orphaned and nothing more is sent. cancelled: its record was deleted';
comment on column ended.ended_at is 'When that happened; null if it is not known';
comment on column ended.reorg_id is 'Reorg that orphaned the transfer; null while it is on the canonical chain';
comment on column ended.tx_hash is 'Its transaction, while reorg_id is set';

create sequence delivery_attempt_id_seq;
create table delivery_attempt (
  shard_id bigint not null,
  id bigint not null default nextval('delivery_attempt_id_seq'),
  notification_id bigint not null,
  lane_id bigint,
  started_at timestamptz(3) not null,
  duration_ms integer not null,
  revision integer not null default 0,
  status integer,
  request_count smallint not null default 1,
  failures smallint,
  outcome text not null,
  response text
) partition by range (started_at);
alter sequence delivery_attempt_id_seq owned by delivery_attempt.id;
create index delivery_attempt_id on delivery_attempt (shard_id, id);
-- A notification has few attempts. With shard_id, because a partition without statistics would be read by the index of ids.
create index delivery_attempt_notification on delivery_attempt (shard_id, notification_id);
-- For readers of all shards, which follow the ids. It takes a few pages, because rows are stored in the order of their ids.
create index delivery_attempt_order on delivery_attempt using brin (id) with (pages_per_range = 32, autosummarize = on);
create table delivery_attempt_default partition of delivery_attempt default;
create index delivery_attempt_default_age on delivery_attempt_default (started_at);
comment on table delivery_attempt is
  'Delivery attempts and their outcomes. Partitioned by the time of their start';
comment on column delivery_attempt.lane_id is 'Delivery queue that sent it, which names its receiver';
comment on column delivery_attempt.revision is 'The revision that was sent';
comment on column delivery_attempt.request_count is '0: nothing was sent. 2: repeated at once because the receiver closed the reused connection of the first request';
comment on column delivery_attempt.failures is 'Of a success: failed attempts of its message before it, or -1 after another success. Null if statistics must look for both';
comment on column delivery_attempt.response is 'Beginning of the response body, without keys';

-- Statistics of deliveries, added up from the attempts by a background step.

create table statistics_state (
  only_row boolean primary key default true check (only_row),
  counted_id bigint,
  counted_until timestamptz,
  counted_from timestamptz
) with (fillfactor = 50);
insert into statistics_state default values;
comment on table statistics_state is 'One row: how far the attempts are added up. Its transaction also writes the sums';
comment on column statistics_state.counted_id is
  'All attempts up to this id are in the sums. Null: the step empties the sums and adds up all stored attempts again';
comment on column statistics_state.counted_until is 'All attempts recorded before this time are in the sums';
comment on column statistics_state.counted_from is 'Start of the first attempt in the sums';

-- Counters are sorted arrays. An entry is the number of a counter times 2^40 plus its count, and only numbers that occur are stored.
create table delivery_sum (
  shard_id bigint not null,
  unit "char" not null check (unit in ('h', 'd', 'H', 'D')),
  started_at timestamptz not null,
  origin text not null,
  attempts bigint not null,
  failed_attempts bigint not null,
  delivered bigint not null,
  first_attempt bigint not null,
  answered bigint not null,
  answer_ms bigint not null,
  latencies bigint[] not null,
  answers bigint[] not null,
  latency_percentiles bigint[],
  answer_percentiles bigint[],
  primary key (shard_id, unit, started_at, origin)
) with (fillfactor = 70);
create index delivery_sum_age on delivery_sum (started_at, unit);
comment on table delivery_sum is
  'Deliveries of a shard by receiver origin. The origin '''' is all receivers of the shard, and shard 0 all shards';
comment on column delivery_sum.unit is
  'h: an hour. d: a day (UTC). Windows, from started_at on, of all shards of a watcher: H: 24 full hours and the present one. D: 30 days';
comment on column delivery_sum.started_at is 'Start of that hour, day or window. Attempts count where they started';
comment on column delivery_sum.delivered is
  'Messages that got their first 2xx. A redelivery is not counted again; a removal notice is another message';
comment on column delivery_sum.first_attempt is 'Those of them that got it with their first attempt';
comment on column delivery_sum.answered is 'Attempts that were answered with a status';
comment on column delivery_sum.answer_ms is 'Sum of their durations';
comment on column delivery_sum.latencies is
  'Counters of time buckets (domain/time-buckets.ts): from the creation of a notification to its first 2xx';
comment on column delivery_sum.answers is 'Counters of time buckets: durations of answered attempts';
comment on column delivery_sum.latency_percentiles is
  'Only of windows: how many latencies there are, and the time buckets of the 50th, 95th and 99th percentile. Null without latencies';
comment on column delivery_sum.answer_percentiles is 'The same for answers';

create table receiver_window (
  unit "char" primary key check (unit in ('H', 'D')),
  started_at timestamptz not null,
  previous timestamptz,
  parts integer not null,
  built_parts integer not null
) with (fillfactor = 50);
comment on table receiver_window is
  'The windows in delivery_sum. They are built in parts of the receivers. Until all parts are built, the previous window is read';
comment on column receiver_window.unit is 'As in delivery_sum';
comment on column receiver_window.started_at is 'Start of the newest window, as in delivery_sum';
comment on column receiver_window.previous is 'Start of the window before, whose rows remain until the next one begins';

create table record_delivery_sum (
  shard_id bigint not null,
  watched_address_id uuid not null,
  started_at timestamptz not null,
  counters bigint[] not null,
  primary key (shard_id, watched_address_id, started_at)
) partition by range (started_at);
create table record_delivery_sum_default partition of record_delivery_sum default;
create index record_delivery_sum_default_age on record_delivery_sum_default (started_at);
comment on table record_delivery_sum is 'Deliveries of a record (watched address) by day (UTC). Partitioned by the day';
comment on column record_delivery_sum.counters is
  'Counters 4 h to 4 h + 3: attempts, failed attempts, delivered, delivered with the first attempt, all in hour h of the day. From 128 on: time buckets of latencies';

create table last_success (
  only_row boolean primary key default true check (only_row),
  at timestamptz
) with (fillfactor = 50);
insert into last_success default values;
comment on table last_success is 'One row: when a receiver last accepted a webhook, to about a second';

-- Everything that is known about a notification. A finished one without a row in `ended` was processed by its first attempt.
create view notification_status as
select n.shard_id, n.id, coalesce(q.lane_id, w.lane_id) as lane_id, n.watched_address_id,
  n.shard_id & 1099511627775 as watcher_id,
  case n.kind when 'c' then 'transaction' when 'i' then 'internal' else 'token' end as kind, n.tx_hash, n.ordinal,
  n.occurrence, n.sender, n.receiver, n.amount, n.token, n.block_number, n.created_at,
  coalesce(q.state, e.state, 'processed') as state, q.release_number, coalesce(q.sequence, e.sequence) as sequence,
  coalesce(q.due_at, n.created_at) as next_attempt_at, coalesce(q.next_retry_at, e.next_retry_at) as next_retry_at,
  coalesce(q.retry_count, e.retry_count, 0) as retry_count,
  coalesce(q.redelivery_count, e.redelivery_count, 0) as redelivery_count,
  case when q.id is not null then null when e.id is not null then case e.state when 'processed' then e.ended_at end
    else (
      select max(a.started_at + a.duration_ms * interval '1 ms') from delivery_attempt a
      where a.notification_id = n.id and a.shard_id = n.shard_id and a.outcome = 'success'
        and a.started_at >= n.created_at - interval '1 day') end as processed_at,
  coalesce(q.revision, e.revision, 0) as revision, coalesce(q.reorg_id, e.reorg_id) as reorg_id, n.replaces,
  case when q.id is not null then q.may_be_seen when e.id is not null then e.may_be_seen else true end as may_be_seen,
  coalesce(q.unsent_epoch, 0) as unsent_epoch,
  -- Changes with the row. Not xmin, which Citus has for each server, and not in joins.
  md5(row(n.block_number, n.ordinal, n.occurrence, q.state, q.lane_id, q.due_at, q.release_number, q.sequence, q.next_retry_at,
    q.retry_count, q.redelivery_count, q.revision, q.reorg_id, q.may_be_seen, q.unsent_epoch, e.state, e.ended_at, e.sequence,
    e.next_retry_at, e.retry_count, e.redelivery_count, e.revision, e.reorg_id, e.may_be_seen)::text) as version
from notification n
left join queue q on q.shard_id = n.shard_id and q.id = n.id
left join ended e on e.shard_id = n.shard_id and e.id = n.id
left join watched_address w on w.shard_id = n.shard_id and w.id = n.watched_address_id;
comment on view notification_status is 'Transfers of watched addresses, and how far each has been delivered';

-- Ids of deferred matches and of sets of transfers.
create sequence deferred_id_seq;

create table deferred_match (
  id bigint primary key,
  watcher_id bigint not null,
  block_number bigint not null,
  address bytea not null check (octet_length(address) = 20),
  set_id bigint not null,
  records integer not null,
  part integer not null default 0,
  records_left integer not null,
  notifications_left bigint not null,
  has_earlier boolean not null
);
alter sequence deferred_id_seq owned by deferred_match.id;
create index deferred_match_watcher on deferred_match (watcher_id, id);
create index deferred_match_address on deferred_match (address, watcher_id);
create index deferred_match_block on deferred_match (block_number);
create index deferred_match_set on deferred_match (set_id);
comment on table deferred_match is
  'Matches whose notifications are written after their block: of one watcher and one address';
comment on column deferred_match.set_id is 'Its transfers, in deferred_transfers';
comment on column deferred_match.records is 'Number of its records, in deferred_records';
comment on column deferred_match.part is 'Part of the transfers whose notifications are written next; those before it have theirs';
comment on column deferred_match.records_left is 'Number of records, counted from the first, without notifications of this part';
comment on column deferred_match.notifications_left is 'Upper bound of the notifications that are not written yet';
comment on column deferred_match.has_earlier is 'Whether some of their transactions had notifications before the block';

create table deferred_transfers (
  set_id bigint not null,
  part integer not null,
  block_number bigint not null,
  matches jsonb not null,
  match_count integer not null,
  primary key (set_id, part)
);
create index deferred_transfers_block on deferred_transfers (block_number);
comment on table deferred_transfers is
  'Transfers of one address in one block, once for the deferred matches of all watchers';
comment on column deferred_transfers.part is 'From 0. Each has at least one transfer, and usually at most 16';
comment on column deferred_transfers.match_count is 'Number of transfers';

create table deferred_records (
  group_id bigint not null,
  part integer not null,
  watcher_id bigint not null,
  block_number bigint not null,
  record_ids uuid[] not null,
  primary key (group_id, part)
);
create index deferred_records_watcher on deferred_records (watcher_id);
create index deferred_records_block on deferred_records (block_number);
comment on table deferred_records is
  'Records that a deferred match is for';
comment on column deferred_records.group_id is 'The deferred match';
comment on column deferred_records.part is 'From 0. Each part but the last has 10,000 records';

create table lost_shards (
  id bigint generated always as identity primary key,
  worker text not null,
  hashes int8multirange not null,
  since timestamptz not null,
  block_number bigint not null,
  reorg_ids bigint[] not null default '{}'
);
comment on table lost_shards is 'Citus: shards that blocks leave out because their worker did not answer, one row for each worker';
comment on column lost_shards.worker is 'Host and port';
comment on column lost_shards.hashes is 'Hash values of their shard ids';
comment on column lost_shards.block_number is 'Newest block that they have; -1 for none';
comment on column lost_shards.reorg_ids is 'Reorgs since then that orphaned blocks which they have, oldest first';

create table missed_block (
  number bigint primary key,
  transfers jsonb not null
);
comment on table missed_block is 'Canonical blocks that some lost shards have not got yet';
comment on column missed_block.transfers is 'Transfers of addresses that may be watched';

create table receiver_failure (
  shard_id bigint not null,
  origin text not null,
  lane_id bigint not null,
  watcher_id bigint not null,
  since timestamptz not null,
  attempts bigint not null,
  last_attempt_at timestamptz not null,
  last_outcome text,
  last_status integer,
  primary key (watcher_id, origin, shard_id)
) with (fillfactor = 50);
comment on table receiver_failure is 'Delivery queues with failed notifications that wait for a retry. A receiver has one in each slice of its watcher';

-- The deployment.

create table clock_state (
  only_row boolean primary key default true check (only_row),
  steps_ms bigint not null default 0,
  last_step_ms bigint,
  last_step_at timestamptz,
  prune_from timestamptz,
  pausing_step_ms bigint,
  pausing_step_at timestamptz,
  probed_at timestamptz
);
insert into clock_state default values;
comment on table clock_state is 'One row: the steps of the clock that all processes share, by which the schedule has been moved';
comment on column clock_state.steps_ms is
  'Sum of all steps. A process leases and reads nothing due until it has followed all of them';
comment on column clock_state.prune_from is 'Nothing is pruned before this time, after a large step';
comment on column clock_state.pausing_step_ms is 'The last of the large steps; last_step_ms is the last of all';
comment on column clock_state.probed_at is 'Written by the probe of /readyz';

create table prune_mark (
  kind text primary key check (kind in ('notification', 'swap', 'pair_state')),
  before timestamptz not null
);
comment on table prune_mark is 'How far retention has deleted: rows of this kind from before this time may be missing, whatever the retention is now';

create table process (
  id text primary key,
  roles text[] not null,
  version text not null,
  host text not null,
  pid integer not null,
  started_at timestamptz not null,
  kek_ids text[] not null default '{}',
  seen_at timestamptz not null,
  beat bigint not null,
  stopped boolean not null default false,
  failed boolean not null default false,
  error text,
  leads boolean not null default false,
  follower_state text,
  head bigint,
  problem text,
  problem_since timestamptz,
  write_failures jsonb not null default '[]',
  failing_work jsonb not null default '[]'
) with (fillfactor = 50);
comment on table process is 'Heartbeats. Only the primary key is indexed and pages are half empty, so that updates stay on their page';
comment on column process.kek_ids is 'Key-encryption keys that it has: those of secret and formerSecrets';
comment on column process.beat is 'Count of heartbeats, independent of the clock';
comment on column process.failed is 'Whether a bug stopped it, or its start failed';
comment on column process.error is 'Why its start failed';
comment on column process.leads is 'Whether it is the leading follower. The columns up to problem_since are null for other roles';
comment on column process.write_failures is 'Writes that were failing at its last heartbeat: part, message and since when';
comment on column process.failing_work is 'Work beside blocks and webhooks that failed then: which, since when and whether by a bug';

-- Prices and pairs.

create table price (
  id bigint generated always as identity primary key,
  asset text not null,
  price numeric not null check (price > 0),
  observed_at timestamptz not null,
  source text not null,
  is_agreed boolean not null default false,
  is_disputed boolean not null default false
);
create index price_asset on price (asset, observed_at desc, id desc);
comment on table price is 'Accepted prices in USD. The newest one of an asset is its price';
comment on column price.is_agreed is 'Sources agreed on the price, so it decides between them when they no longer do';
comment on column price.is_disputed is 'At most half of the believable sources agreed, so the price never decides between them';

create table price_observation (
  id bigint generated always as identity primary key,
  asset text not null,
  round_at timestamptz not null,
  source text not null,
  price numeric,
  conf numeric,
  observed_at timestamptz,
  verdict text not null check (verdict in ('used', 'outlier', 'stale', 'not_positive', 'uncertain', 'failed')),
  message text,
  price_id bigint references price (id),
  check ((verdict = 'failed') = (price is null))
);
create index price_observation_asset on price_observation (asset, round_at desc);
create index price_observation_round on price_observation (round_at);
comment on table price_observation is 'Answers of the price sources in each round, with the verdict on each';
comment on column price_observation.conf is 'Half the width of the interval that the source gives, in USD';
comment on column price_observation.price_id is 'Price that the round accepted; null if it accepted none';

create table pair (
  id integer primary key,
  address bytea not null unique check (octet_length(address) = 20),
  token0 bytea not null check (octet_length(token0) = 20),
  token1 bytea not null check (octet_length(token1) = 20),
  token0_decimals smallint not null,
  token1_decimals smallint not null,
  usd_value_from smallint not null check (usd_value_from in (0, 1)),
  followed_from bigint,
  backfill_number bigint,
  backfill_hash bytea check (octet_length(backfill_hash) = 32),
  backfill_until timestamptz not null,
  gaps tstzmultirange not null default '{}'
);
comment on table pair is 'Swap pairs as they were configured when their data was stored';
comment on column pair.usd_value_from is 'Token whose amount gives a swap its value in USD';
comment on column pair.followed_from is 'Events of the pair are complete from this block on; null while it is not configured';
comment on column pair.backfill_number is 'Next block that the backfill reads, going down; null when it is complete';
comment on column pair.backfill_until is 'The backfill ends at this time: it reads only later blocks';
comment on column pair.gaps is 'Times in which the pair was not followed and that no backfill reads';

create table swap (
  pair_id integer not null,
  block_number bigint not null,
  tx_hash bytea not null check (octet_length(tx_hash) = 32),
  ordinal integer not null,
  log_index integer not null,
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
comment on table swap is 'Swap events';
comment on column swap.ordinal is 'Index of the log in its receipt';
comment on column swap.log_index is 'Index of the log in its block';
comment on column swap.usd_value is 'Value in USD at the price in force at the time. Never changes once set; null until there is such a price';

create table swap_volume (
  pair_id integer not null,
  started_at timestamptz not null,
  usd_value numeric not null,
  swap_count bigint not null,
  primary key (pair_id, started_at)
);
comment on table swap_volume is 'Sums of swap.usd_value over five minutes';

create table pair_state (
  pair_id integer not null,
  block_number bigint not null,
  mined_at timestamptz not null,
  reserve0 numeric(78, 0) not null,
  reserve1 numeric(78, 0) not null,
  price numeric,
  supply_change numeric(78, 0) not null,
  liquidity_k numeric(78, 0),
  primary key (pair_id, block_number)
);
create index pair_state_block on pair_state (block_number);
create index pair_state_time on pair_state (pair_id, mined_at desc);
create index pair_state_liquidity on pair_state (pair_id, block_number) where liquidity_k is not null or supply_change <> 0;
comment on table pair_state is 'State of a pair at the end of each block that changed it. The newest row is the current state';
comment on column pair_state.price is
  'Units of the token that gives the value in USD, for one unit of the other; null without reserves';
comment on column pair_state.supply_change is 'Change of the LP token supply in this block';
comment on column pair_state.liquidity_k is 'Product of the reserves after the last liquidity event of this block';

create table pair_reading (
  pair_id integer not null,
  block_number bigint not null,
  total_supply numeric(78, 0) not null,
  k_last numeric(78, 0) not null,
  is_fee_on boolean not null,
  primary key (pair_id, block_number)
);
create index pair_reading_block on pair_reading (block_number);
comment on table pair_reading is 'Answers of the contracts of a pair at the end of a block';
comment on column pair_reading.k_last is 'Product of the reserves after the last liquidity event, as the contract has it';
comment on column pair_reading.is_fee_on is 'Whether a protocol fee is minted';

-- Supply.

create table supply_reading (
  only_row boolean primary key default true check (only_row),
  read_at timestamptz not null,
  block_number bigint not null,
  block_hash bytea not null check (octet_length(block_hash) = 32),
  node_name text not null,
  method text not null check (method in ('multicall3', 'eth_getBalance'))
);
comment on table supply_reading is 'Last good reading of the supply, used while no node answers';
comment on column supply_reading.node_name is 'scheme://host';

create table supply_balance (
  address bytea primary key check (octet_length(address) = 20),
  wei numeric(78, 0) not null,
  read_at timestamptz not null
);
comment on table supply_balance is 'Newest known balance of each address of the supply';

-- Points.

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
comment on table point is 'Awards. Those without a block were imported, and no reorg removes them';
comment on column point.inputs is 'Values that the rule calculated with';

create table point_day (
  user_address bytea not null,
  day date not null,
  category text not null,
  rule text not null,
  version integer not null,
  role text not null,
  points numeric not null,
  award_count bigint not null check (award_count > 0),
  primary key (user_address, day, category, rule, version, role)
);
comment on table point_day is 'Sums of awards by day (UTC), updated in the transactions that write awards';

create table point_month (
  month date not null,
  user_address bytea not null,
  points numeric not null,
  award_count bigint not null check (award_count > 0),
  minus_points numeric not null generated always as (-points) stored,
  entry text not null generated always as (
    '{"user":"0x' || encode(user_address, 'hex') || '","points":' || trim_scale(points)::text || '}') stored,
  primary key (month, user_address)
);
create index point_month_leaders on point_month (month, minus_points, user_address) include (entry) where points <> 0;
comment on table point_month is 'Sums of awards by month (UTC): the leaderboard';
comment on column point_month.month is 'Its first day';
comment on column point_month.minus_points is
  'Negated points: the leaderboard is in ascending order of it, so that one row comparison finds where a page begins';
comment on column point_month.entry is 'Entry of the leaderboard as JSON';

create table referral (
  user_address bytea not null check (octet_length(user_address) = 20),
  referrer_address bytea not null check (octet_length(referrer_address) = 20),
  block_number bigint not null,
  log_index integer not null,
  linked_at timestamptz(3) not null,
  primary key (user_address, block_number, log_index)
);
create index referral_block on referral (block_number);
comment on table referral is 'Referrers of users, as events on the chain name them';
comment on column referral.log_index is 'Index of the log in its block';

create table accrual (
  rule text not null,
  user_address bytea not null check (octet_length(user_address) = 20),
  balance numeric(98, 0) not null,
  day integer not null,
  balance_seconds numeric not null,
  touched_at timestamptz(3) not null,
  tx_hash bytea not null check (octet_length(tx_hash) = 32),
  touch integer not null,
  primary key (rule, user_address)
);
-- Days that are still to be closed, the oldest first.
create index accrual_open on accrual (day, rule, user_address) where balance > 0 or balance_seconds > 0;
comment on table accrual is 'Balances that award rules accumulate over time, as of the last change of each';
comment on column accrual.day is 'First day that is not closed, in days since 1970-01-01 (UTC)';
comment on column accrual.balance_seconds is 'Balance times seconds of that day until touched_at';
comment on column accrual.tx_hash is 'Transaction of the last change';
comment on column accrual.touch is 'Index of the log of the last change';

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
comment on table accrual_before is
  'Accruals before the first change in each block that a reorg may still orphan; nulls where there was none';
