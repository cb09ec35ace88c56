-- Made by `npm run generate` from the migrations: the schema as it is today. Not to be edited.

create table accrual (
  rule text not null,
  user_address bytea not null,
  balance numeric(98,0) not null,
  day integer not null,
  balance_seconds numeric not null,
  touched_at timestamp(3) with time zone not null,
  tx_hash bytea not null,
  touch integer not null,
  constraint accrual_pkey PRIMARY KEY (rule, user_address),
  constraint accrual_tx_hash_check CHECK ((octet_length(tx_hash) = 32)),
  constraint accrual_user_address_check CHECK ((octet_length(user_address) = 20))
);
CREATE INDEX accrual_open ON public.accrual USING btree (day, rule, user_address) WHERE ((balance > (0)::numeric) OR (balance_seconds > (0)::numeric));
comment on table accrual is 'Balances that award rules accumulate over time, as of the last change of each';
comment on column accrual.day is 'First day that is not closed, in days since 1970-01-01 (UTC)';
comment on column accrual.balance_seconds is 'Balance times seconds of that day until touched_at';
comment on column accrual.tx_hash is 'Transaction of the last change';
comment on column accrual.touch is 'Index of the log of the last change';

create table accrual_before (
  block_number bigint not null,
  rule text not null,
  user_address bytea not null,
  balance numeric(98,0),
  day integer,
  balance_seconds numeric,
  touched_at timestamp(3) with time zone,
  tx_hash bytea,
  touch integer,
  constraint accrual_before_pkey PRIMARY KEY (block_number, rule, user_address)
);
comment on table accrual_before is 'Accruals before the first change in each block that a reorg may still orphan; nulls where there was none';

create unlogged table address_change (
  xid xid8 not null,
  address bytea,
  removed_count integer not null default 0
);
CREATE INDEX address_change_xid ON public.address_change USING btree (xid);
comment on table address_change is 'Changes of watched addresses that the filter may not have yet';
comment on column address_change.xid is 'Transaction of the change';
comment on column address_change.address is 'Address that a record got; null in a row that counts removed ones';
comment on column address_change.removed_count is 'Addresses that lost a record';

create unlogged table address_filter (
  id uuid not null,
  snapshot pg_snapshot not null,
  writer xid8 not null,
  constraint address_filter_pkey PRIMARY KEY (id)
);
comment on table address_filter is 'The filter that the leading follower holds in memory: one row or none. Changes of addresses are noted while there is one';
comment on column address_filter.snapshot is 'The filter has every watched address that is visible in this snapshot';
comment on column address_filter.writer is 'Transaction that wrote this row. It differs from xmin in a copy of the row, whose snapshot belongs to another server';

create table api_key (
  id text not null,
  watcher_id bigint not null,
  lookup bytea not null,
  ciphertext bytea not null,
  kek_id text not null,
  created_at timestamp with time zone not null,
  revoked_at timestamp with time zone,
  expires_at timestamp with time zone,
  constraint api_key_pkey PRIMARY KEY (id),
  constraint api_key_lookup_key UNIQUE (lookup),
  constraint api_key_watcher_id_fkey FOREIGN KEY (watcher_id) REFERENCES watcher(id)
);
CREATE INDEX api_key_kek ON public.api_key USING btree (kek_id);
CREATE INDEX api_key_watcher ON public.api_key USING btree (watcher_id, created_at DESC);
comment on table api_key is 'API keys, without their text';
comment on column api_key.lookup is 'HMAC of the key, by which a request finds it';
comment on column api_key.ciphertext is 'The key for the Authorization header of webhooks (AES-256-GCM)';
comment on column api_key.kek_id is 'Key-encryption key of the ciphertext';
comment on column api_key.revoked_at is 'The key is refused from then on; in the future while a rotated key overlaps with its successor';
comment on column api_key.expires_at is 'End of that overlap; null for a key that was not rotated with one. revoked_at is the same unless the key was revoked earlier';

create table block (
  number bigint not null,
  hash bytea not null,
  parent_hash bytea not null,
  mined_at timestamp with time zone not null,
  proved boolean not null,
  stored_at timestamp with time zone not null,
  constraint block_pkey PRIMARY KEY (number),
  constraint block_hash_check CHECK ((octet_length(hash) = 32)),
  constraint block_parent_hash_check CHECK ((octet_length(parent_hash) = 32))
);
comment on table block is 'Headers of the canonical chain. The newest one is the tip';
comment on column block.mined_at is 'Timestamp of the header';
comment on column block.proved is 'Whether its hash was checked against its contents';

create table chain (
  only_row boolean not null default true,
  chain_id bigint not null,
  genesis_hash bytea,
  start_number bigint,
  finalized_number bigint not null default 0,
  corroborated_number bigint,
  enforced_checks text[] not null default '{}'::text[],
  unproved_types text[] not null default '{}'::text[],
  has_traces boolean not null default false,
  timeline text,
  constraint chain_pkey PRIMARY KEY (only_row),
  constraint chain_only_row_check CHECK (only_row)
);
comment on table chain is 'The chain that this database belongs to: one row, written by the first follower';
comment on column chain.start_number is 'First followed block';
comment on column chain.corroborated_number is 'Newest block that a quorum of the nodes was seen to have; null until one was';
comment on column chain.enforced_checks is 'Proof checks that the chain was seen to honor, enforced after a restart too';
comment on column chain.unproved_types is 'Transaction types that the chain was seen to have, and that Chainbell cannot prove';
comment on column chain.has_traces is 'Whether a node has traced a stored block, so that nodes that do not answer may be those that can';
comment on column chain.timeline is 'Timeline of the write-ahead log when a process began to follow. Another one shows that a standby was promoted, which may lack commits';

create table clock_state (
  only_row boolean not null default true,
  steps_ms bigint not null default 0,
  last_step_ms bigint,
  last_step_at timestamp with time zone,
  prune_from timestamp with time zone,
  pausing_step_ms bigint,
  pausing_step_at timestamp with time zone,
  probed_at timestamp with time zone,
  constraint clock_state_pkey PRIMARY KEY (only_row),
  constraint clock_state_only_row_check CHECK (only_row)
);
comment on table clock_state is 'One row: the steps of the clock that all processes share, by which the schedule has been moved';
comment on column clock_state.steps_ms is 'Sum of all steps. A process leases and reads nothing due until it has followed all of them';
comment on column clock_state.prune_from is 'Nothing is pruned before this time, after a large step';
comment on column clock_state.pausing_step_ms is 'The last of the large steps; last_step_ms is the last of all';
comment on column clock_state.probed_at is 'Written by the probe of /readyz';

create table deferred_match (
  id bigint not null,
  watcher_id bigint not null,
  block_number bigint not null,
  address bytea not null,
  set_id bigint not null,
  records integer not null,
  part integer not null default 0,
  records_left integer not null,
  notifications_left bigint not null,
  has_earlier boolean not null,
  constraint deferred_match_pkey PRIMARY KEY (id),
  constraint deferred_match_address_check CHECK ((octet_length(address) = 20))
);
CREATE INDEX deferred_match_address ON public.deferred_match USING btree (address, watcher_id);
CREATE INDEX deferred_match_block ON public.deferred_match USING btree (block_number);
CREATE INDEX deferred_match_set ON public.deferred_match USING btree (set_id);
CREATE INDEX deferred_match_watcher ON public.deferred_match USING btree (watcher_id, id);
comment on table deferred_match is 'Matches whose notifications are written after their block: of one watcher and one address';
comment on column deferred_match.set_id is 'Its transfers, in deferred_transfers';
comment on column deferred_match.records is 'Number of its records, in deferred_records';
comment on column deferred_match.part is 'Part of the transfers whose notifications are written next; those before it have theirs';
comment on column deferred_match.records_left is 'Number of records, counted from the first, without notifications of this part';
comment on column deferred_match.notifications_left is 'Upper bound of the notifications that are not written yet';
comment on column deferred_match.has_earlier is 'Whether some of their transactions had notifications before the block';

create table deferred_records (
  group_id bigint not null,
  part integer not null,
  watcher_id bigint not null,
  block_number bigint not null,
  record_ids uuid[] not null,
  constraint deferred_records_pkey PRIMARY KEY (group_id, part)
);
CREATE INDEX deferred_records_block ON public.deferred_records USING btree (block_number);
CREATE INDEX deferred_records_watcher ON public.deferred_records USING btree (watcher_id);
comment on table deferred_records is 'Records that a deferred match is for';
comment on column deferred_records.group_id is 'The deferred match';
comment on column deferred_records.part is 'From 0. Each part but the last has 10,000 records';

create table deferred_transfers (
  set_id bigint not null,
  part integer not null,
  block_number bigint not null,
  matches jsonb not null,
  match_count integer not null,
  constraint deferred_transfers_pkey PRIMARY KEY (set_id, part)
);
CREATE INDEX deferred_transfers_block ON public.deferred_transfers USING btree (block_number);
comment on table deferred_transfers is 'Transfers of one address in one block, once for the deferred matches of all watchers';
comment on column deferred_transfers.part is 'From 0. Each has at least one transfer, and usually at most 16';
comment on column deferred_transfers.match_count is 'Number of transfers';

create table delivery_attempt (
  shard_id bigint not null,
  id bigint not null default nextval('delivery_attempt_id_seq'::regclass),
  notification_id bigint not null,
  lane_id bigint,
  started_at timestamp(3) with time zone not null,
  duration_ms integer not null,
  revision integer not null default 0,
  status integer,
  request_count smallint not null default 1,
  failures smallint,
  outcome text not null,
  response text
) partition by range (started_at);
CREATE INDEX delivery_attempt_id ON ONLY public.delivery_attempt USING btree (shard_id, id);
CREATE INDEX delivery_attempt_notification ON ONLY public.delivery_attempt USING btree (shard_id, notification_id);
CREATE INDEX delivery_attempt_order ON ONLY public.delivery_attempt USING brin (id) WITH (pages_per_range='32', autosummarize='on');
comment on table delivery_attempt is 'Delivery attempts and their outcomes. Partitioned by the time of their start';
comment on column delivery_attempt.lane_id is 'Delivery queue that sent it, which names its receiver';
comment on column delivery_attempt.revision is 'The revision that was sent';
comment on column delivery_attempt.request_count is '0: nothing was sent. 2: repeated at once because the receiver closed the reused connection of the first request';
comment on column delivery_attempt.failures is 'Of a success: failed attempts of its message before it, or -1 after another success. Null if statistics must look for both';
comment on column delivery_attempt.response is 'Beginning of the response body, without keys';

create table delivery_sum (
  shard_id bigint not null,
  unit "char" not null,
  started_at timestamp with time zone not null,
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
  constraint delivery_sum_pkey PRIMARY KEY (shard_id, unit, started_at, origin),
  constraint delivery_sum_unit_check CHECK ((unit = ANY (ARRAY['h'::"char", 'd'::"char", 'H'::"char", 'D'::"char"])))
);
CREATE INDEX delivery_sum_age ON public.delivery_sum USING btree (started_at, unit);
comment on table delivery_sum is 'Deliveries of a shard by receiver origin. The origin '''' is all receivers of the shard, and shard 0 all shards';
comment on column delivery_sum.unit is 'h: an hour. d: a day (UTC). Windows, from started_at on, of all shards of a watcher: H: 24 full hours and the present one. D: 30 days';
comment on column delivery_sum.started_at is 'Start of that hour, day or window. Attempts count where they started';
comment on column delivery_sum.delivered is 'Messages that got their first 2xx. A redelivery is not counted again; a removal notice is another message';
comment on column delivery_sum.first_attempt is 'Those of them that got it with their first attempt';
comment on column delivery_sum.answered is 'Attempts that were answered with a status';
comment on column delivery_sum.answer_ms is 'Sum of their durations';
comment on column delivery_sum.latencies is 'Counters of time buckets (domain/time-buckets.ts): from the creation of a notification to its first 2xx';
comment on column delivery_sum.answers is 'Counters of time buckets: durations of answered attempts';
comment on column delivery_sum.latency_percentiles is 'Only of windows: how many latencies there are, and the time buckets of the 50th, 95th and 99th percentile. Null without latencies';
comment on column delivery_sum.answer_percentiles is 'The same for answers';

create table ended (
  shard_id bigint not null,
  id bigint not null,
  created_at timestamp(3) with time zone not null,
  state text not null,
  ended_at timestamp with time zone,
  sequence bigint,
  next_retry_at timestamp with time zone,
  retry_count integer not null default 0,
  redelivery_count integer not null default 0,
  revision integer not null default 0,
  reorg_id bigint,
  tx_hash bytea,
  may_be_seen boolean not null default false,
  constraint ended_pkey PRIMARY KEY (shard_id, id),
  constraint ended_state_check CHECK ((state = ANY (ARRAY['processed'::text, 'withdrawn'::text, 'cancelled'::text])))
);
CREATE INDEX ended_created ON public.ended USING btree (created_at);
CREATE INDEX ended_orphaned ON public.ended USING btree (tx_hash) WHERE (reorg_id IS NOT NULL);
CREATE INDEX ended_reorg ON public.ended USING btree (reorg_id) WHERE (reorg_id IS NOT NULL);
comment on table ended is 'Finished notifications that were not simply processed: retried, redelivered, in strict order, orphaned, withdrawn or cancelled';
comment on column ended.state is 'processed: the receiver answered 2xx. withdrawn: its block was orphaned and nothing more is sent. cancelled: its record was deleted';
comment on column ended.ended_at is 'When that happened; null if it is not known';
comment on column ended.reorg_id is 'Reorg that orphaned the transfer; null while it is on the canonical chain';
comment on column ended.tx_hash is 'Its transaction, while reorg_id is set';

create table idempotent_answer (
  shard_id bigint not null,
  key text not null,
  part integer not null,
  digest bytea not null,
  answer text not null,
  created_at timestamp with time zone not null,
  constraint idempotent_answer_pkey PRIMARY KEY (shard_id, key, part)
);
CREATE INDEX idempotent_answer_created ON public.idempotent_answer USING btree (created_at);
comment on table idempotent_answer is 'Responses to requests with an Idempotency-Key, stored in the transaction that did the work';
comment on column idempotent_answer.part is 'A long request is answered in several parts, each with its own transaction';
comment on column idempotent_answer.digest is 'Hash of the request, which must be the same when it is repeated';

create table incoming_move (
  only_row boolean not null default true,
  began_at timestamp with time zone not null,
  completed_at timestamp with time zone,
  constraint incoming_move_pkey PRIMARY KEY (only_row),
  constraint incoming_move_only_row_check CHECK (only_row)
);
comment on table incoming_move is 'The move of an embedded database to this one: one row or none';
comment on column incoming_move.completed_at is 'Null until everything is copied: no service may start here before';

create table lane (
  id bigint not null generated always as identity,
  shard_id bigint not null,
  watcher_id bigint not null,
  origin text not null,
  next_due timestamp with time zone,
  owner integer,
  epoch bigint not null default 0,
  lease_until timestamp with time zone,
  constraint lane_pkey PRIMARY KEY (id),
  constraint lane_shard_id_origin_key UNIQUE (shard_id, origin)
);
CREATE INDEX lane_owned ON public.lane USING btree (owner) WHERE (owner IS NOT NULL);
CREATE INDEX lane_watcher_due ON public.lane USING btree (watcher_id, next_due) WHERE ((next_due IS NOT NULL) AND (owner IS NULL));
comment on table lane is 'Delivery queues: all work of one shard for one receiver origin. Workers lease them';
comment on column lane.next_due is 'When its next notification is due at the earliest; null while nothing is due';
comment on column lane.owner is 'Lock key of the worker that leases it; null while none does';
comment on column lane.epoch is 'Counts leases: results of an earlier lease are refused';

create table last_success (
  only_row boolean not null default true,
  at timestamp with time zone,
  constraint last_success_pkey PRIMARY KEY (only_row),
  constraint last_success_only_row_check CHECK (only_row)
);
comment on table last_success is 'One row: when a receiver last accepted a webhook, to about a second';

create table lost_shards (
  id bigint not null generated always as identity,
  worker text not null,
  hashes int8multirange not null,
  since timestamp with time zone not null,
  block_number bigint not null,
  reorg_ids bigint[] not null default '{}'::bigint[],
  constraint lost_shards_pkey PRIMARY KEY (id)
);
comment on table lost_shards is 'Citus: shards that blocks leave out because their worker did not answer, one row for each worker';
comment on column lost_shards.worker is 'Host and port';
comment on column lost_shards.hashes is 'Hash values of their shard ids';
comment on column lost_shards.block_number is 'Newest block that they have; -1 for none';
comment on column lost_shards.reorg_ids is 'Reorgs since then that orphaned blocks which they have, oldest first';

create table migration (
  id integer not null,
  name text not null,
  applied_at timestamp with time zone not null,
  breaking text,
  constraint migration_pkey PRIMARY KEY (id)
);

create table missed_block (
  number bigint not null,
  transfers jsonb not null,
  constraint missed_block_pkey PRIMARY KEY (number)
);
comment on table missed_block is 'Canonical blocks that some lost shards have not got yet';
comment on column missed_block.transfers is 'Transfers of addresses that may be watched';

create table notification (
  shard_id bigint not null,
  id bigint not null default nextval('notification_id_seq'::regclass),
  created_at timestamp(3) with time zone not null,
  block_number bigint not null,
  ordinal integer not null,
  occurrence integer not null default 0,
  kind "char" not null,
  watched_address_id uuid not null,
  tx_hash bytea not null,
  sender bytea not null,
  receiver bytea,
  token bytea,
  amount numeric(78,0) not null,
  replaces bigint,
  is_held boolean not null default false,
  constraint notification_kind_check CHECK ((kind = ANY (ARRAY['c'::"char", 'i'::"char", 't'::"char"]))),
  constraint notification_tx_hash_check CHECK ((octet_length(tx_hash) = 32))
) partition by range (created_at);
CREATE INDEX notification_block ON ONLY public.notification USING brin (block_number) WITH (autosummarize='on');
CREATE INDEX notification_created ON ONLY public.notification USING brin (created_at) WITH (autosummarize='on');
CREATE INDEX notification_id ON ONLY public.notification USING btree (shard_id, id);
CREATE INDEX notification_order ON ONLY public.notification USING brin (((id + 0))) WITH (pages_per_range='32', autosummarize='on');
CREATE INDEX notification_record ON ONLY public.notification USING btree (watched_address_id, shard_id, id);
CREATE INDEX notification_transaction ON ONLY public.notification USING btree (substr(tx_hash, 29));
comment on table notification is 'Transfers of watched addresses. Partitioned by time of creation';
comment on column notification.ordinal is 'Position in the transaction, among transfers of its kind; of a token its index in the receipt';
comment on column notification.occurrence is 'Which of several equal transfers of one transaction this is, from 0 on';
comment on column notification.kind is 'c: the value of a transaction. i: the value of a call. t: an ERC-20 Transfer log';
comment on column notification.amount is 'In wei, or in the smallest unit of the token';
comment on column notification.replaces is 'Notification that this one replaces, after their transaction was mined again with other contents';
comment on column notification.is_held is 'Whether it was held when it was created, so that the time until its delivery is not only that of the delivery';

create table origin_usage (
  watcher_id bigint not null,
  origin text not null,
  records bigint not null,
  constraint origin_usage_pkey PRIMARY KEY (watcher_id, origin)
);
comment on table origin_usage is 'Number of records of each watcher and receiver origin';

create table orphaned_block (
  reorg_id bigint not null,
  number bigint not null,
  hash bytea not null,
  constraint orphaned_block_pkey PRIMARY KEY (reorg_id, number),
  constraint orphaned_block_hash_check CHECK ((octet_length(hash) = 32)),
  constraint orphaned_block_reorg_id_fkey FOREIGN KEY (reorg_id) REFERENCES reorg(id)
);
comment on table orphaned_block is 'Blocks that each reorg orphaned';

create table pair (
  id integer not null,
  address bytea not null,
  token0 bytea not null,
  token1 bytea not null,
  token0_decimals smallint not null,
  token1_decimals smallint not null,
  usd_value_from smallint not null,
  followed_from bigint,
  backfill_number bigint,
  backfill_hash bytea,
  backfill_until timestamp with time zone not null,
  gaps tstzmultirange not null default '{}'::tstzmultirange,
  constraint pair_pkey PRIMARY KEY (id),
  constraint pair_address_check CHECK ((octet_length(address) = 20)),
  constraint pair_address_key UNIQUE (address),
  constraint pair_backfill_hash_check CHECK ((octet_length(backfill_hash) = 32)),
  constraint pair_token0_check CHECK ((octet_length(token0) = 20)),
  constraint pair_token1_check CHECK ((octet_length(token1) = 20)),
  constraint pair_usd_value_from_check CHECK ((usd_value_from = ANY (ARRAY[0, 1])))
);
comment on table pair is 'Swap pairs as they were configured when their data was stored';
comment on column pair.usd_value_from is 'Token whose amount gives a swap its value in USD';
comment on column pair.followed_from is 'Events of the pair are complete from this block on; null while it is not configured';
comment on column pair.backfill_number is 'Next block that the backfill reads, going down; null when it is complete';
comment on column pair.backfill_until is 'The backfill ends at this time: it reads only later blocks';
comment on column pair.gaps is 'Times in which the pair was not followed and that no backfill reads';

create table pair_reading (
  pair_id integer not null,
  block_number bigint not null,
  total_supply numeric(78,0) not null,
  k_last numeric(78,0) not null,
  is_fee_on boolean not null,
  constraint pair_reading_pkey PRIMARY KEY (pair_id, block_number)
);
CREATE INDEX pair_reading_block ON public.pair_reading USING btree (block_number);
comment on table pair_reading is 'Answers of the contracts of a pair at the end of a block';
comment on column pair_reading.k_last is 'Product of the reserves after the last liquidity event, as the contract has it';
comment on column pair_reading.is_fee_on is 'Whether a protocol fee is minted';

create table pair_state (
  pair_id integer not null,
  block_number bigint not null,
  mined_at timestamp with time zone not null,
  reserve0 numeric(78,0) not null,
  reserve1 numeric(78,0) not null,
  price numeric,
  supply_change numeric(78,0) not null,
  liquidity_k numeric(78,0),
  constraint pair_state_pkey PRIMARY KEY (pair_id, block_number)
);
CREATE INDEX pair_state_block ON public.pair_state USING btree (block_number);
CREATE INDEX pair_state_liquidity ON public.pair_state USING btree (pair_id, block_number) WHERE ((liquidity_k IS NOT NULL) OR (supply_change <> (0)::numeric));
CREATE INDEX pair_state_time ON public.pair_state USING btree (pair_id, mined_at DESC);
comment on table pair_state is 'State of a pair at the end of each block that changed it. The newest row is the current state';
comment on column pair_state.price is 'Units of the token that gives the value in USD, for one unit of the other; null without reserves';
comment on column pair_state.supply_change is 'Change of the LP token supply in this block';
comment on column pair_state.liquidity_k is 'Product of the reserves after the last liquidity event of this block';

create table point (
  id bigint not null generated always as identity,
  rule text not null,
  version integer not null,
  category text not null,
  user_address bytea not null,
  points numeric not null,
  tx_hash bytea not null,
  ordinal bigint not null,
  role text not null,
  block_number bigint,
  block_hash bytea,
  awarded_at timestamp(3) with time zone not null,
  inputs jsonb not null,
  constraint point_pkey PRIMARY KEY (tx_hash, ordinal, rule, version, role),
  constraint point_block_hash_check CHECK ((octet_length(block_hash) = 32)),
  constraint point_check CHECK (((block_number IS NULL) = (block_hash IS NULL))),
  constraint point_role_check CHECK ((role = ANY (ARRAY['user'::text, 'referrer'::text]))),
  constraint point_tx_hash_check CHECK ((octet_length(tx_hash) = 32)),
  constraint point_user_address_check CHECK ((octet_length(user_address) = 20))
);
CREATE INDEX point_block ON public.point USING btree (block_number) WHERE (block_number IS NOT NULL);
CREATE INDEX point_user ON public.point USING btree (user_address, awarded_at, id);
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
  award_count bigint not null,
  constraint point_day_pkey PRIMARY KEY (user_address, day, category, rule, version, role),
  constraint point_day_award_count_check CHECK ((award_count > 0))
);
comment on table point_day is 'Sums of awards by day (UTC), updated in the transactions that write awards';

create table point_month (
  month date not null,
  user_address bytea not null,
  points numeric not null,
  award_count bigint not null,
  minus_points numeric not null generated always as ((- points)) stored,
  entry text not null generated always as ((((('{"user":"0x'::text || encode(user_address, 'hex'::text)) || '","points":'::text) || (trim_scale(points))::text) || '}'::text)) stored,
  constraint point_month_pkey PRIMARY KEY (month, user_address),
  constraint point_month_award_count_check CHECK ((award_count > 0))
);
CREATE INDEX point_month_leaders ON public.point_month USING btree (month, minus_points, user_address) INCLUDE (entry) WHERE (points <> (0)::numeric);
comment on table point_month is 'Sums of awards by month (UTC): the leaderboard';
comment on column point_month.month is 'Its first day';
comment on column point_month.minus_points is 'Negated points: the leaderboard is in ascending order of it, so that one row comparison finds where a page begins';
comment on column point_month.entry is 'Entry of the leaderboard as JSON';

create table price (
  id bigint not null generated always as identity,
  asset text not null,
  price numeric not null,
  observed_at timestamp with time zone not null,
  source text not null,
  is_agreed boolean not null default false,
  is_disputed boolean not null default false,
  constraint price_pkey PRIMARY KEY (id),
  constraint price_price_check CHECK ((price > (0)::numeric))
);
CREATE INDEX price_asset ON public.price USING btree (asset, observed_at DESC, id DESC);
comment on table price is 'Accepted prices in USD. The newest one of an asset is its price';
comment on column price.is_agreed is 'Sources agreed on the price, so it decides between them when they no longer do';
comment on column price.is_disputed is 'At most half of the believable sources agreed, so the price never decides between them';

create table price_observation (
  id bigint not null generated always as identity,
  asset text not null,
  round_at timestamp with time zone not null,
  source text not null,
  price numeric,
  conf numeric,
  observed_at timestamp with time zone,
  verdict text not null,
  message text,
  price_id bigint,
  constraint price_observation_pkey PRIMARY KEY (id),
  constraint price_observation_check CHECK (((verdict = 'failed'::text) = (price IS NULL))),
  constraint price_observation_price_id_fkey FOREIGN KEY (price_id) REFERENCES price(id),
  constraint price_observation_verdict_check CHECK ((verdict = ANY (ARRAY['used'::text, 'outlier'::text, 'stale'::text, 'not_positive'::text, 'uncertain'::text, 'failed'::text])))
);
CREATE INDEX price_observation_asset ON public.price_observation USING btree (asset, round_at DESC);
CREATE INDEX price_observation_round ON public.price_observation USING btree (round_at);
comment on table price_observation is 'Answers of the price sources in each round, with the verdict on each';
comment on column price_observation.conf is 'Half the width of the interval that the source gives, in USD';
comment on column price_observation.price_id is 'Price that the round accepted; null if it accepted none';

create table process (
  id text not null,
  roles text[] not null,
  version text not null,
  host text not null,
  pid integer not null,
  started_at timestamp with time zone not null,
  kek_ids text[] not null default '{}'::text[],
  seen_at timestamp with time zone not null,
  beat bigint not null,
  stopped boolean not null default false,
  failed boolean not null default false,
  error text,
  leads boolean not null default false,
  follower_state text,
  head bigint,
  problem text,
  problem_since timestamp with time zone,
  write_failures jsonb not null default '[]'::jsonb,
  failing_work jsonb not null default '[]'::jsonb,
  constraint process_pkey PRIMARY KEY (id)
);
comment on table process is 'Heartbeats. Only the primary key is indexed and pages are half empty, so that updates stay on their page';
comment on column process.kek_ids is 'Key-encryption keys that it has: those of secret and formerSecrets';
comment on column process.beat is 'Count of heartbeats, independent of the clock';
comment on column process.failed is 'Whether a bug stopped it, or its start failed';
comment on column process.error is 'Why its start failed';
comment on column process.leads is 'Whether it is the leading follower. The columns up to problem_since are null for other roles';
comment on column process.write_failures is 'Writes that were failing at its last heartbeat: part, message and since when';
comment on column process.failing_work is 'Work beside blocks and webhooks that failed then: which, since when and whether by a bug';

create table prune_mark (
  kind text not null,
  before timestamp with time zone not null,
  constraint prune_mark_pkey PRIMARY KEY (kind),
  constraint prune_mark_kind_check CHECK ((kind = ANY (ARRAY['notification'::text, 'swap'::text, 'pair_state'::text])))
);
comment on table prune_mark is 'How far retention has deleted: rows of this kind from before this time may be missing, whatever the retention is now';

create table queue (
  shard_id bigint not null,
  id bigint not null,
  created_at timestamp(3) with time zone not null,
  lane_id bigint not null,
  due_at timestamp(3) with time zone not null,
  watched_address_id uuid not null,
  state text not null,
  release_number bigint,
  sequence bigint,
  next_retry_at timestamp with time zone,
  retry_count integer not null default 0,
  redelivery_count integer not null default 0,
  revision integer not null default 0,
  reorg_id bigint,
  tx_hash bytea,
  may_be_seen boolean not null default false,
  unsent_epoch bigint not null default 0,
  constraint queue_pkey PRIMARY KEY (shard_id, id),
  constraint queue_retry_count_check CHECK ((retry_count >= 0)),
  constraint queue_state_check CHECK ((state = ANY (ARRAY['held'::text, 'waiting'::text])))
);
CREATE INDEX queue_first ON public.queue USING btree (shard_id, lane_id, due_at, id) WHERE ((state = 'waiting'::text) AND (retry_count = 0));
CREATE INDEX queue_held ON public.queue USING btree (release_number, shard_id) WHERE (state = 'held'::text);
CREATE INDEX queue_orphaned ON public.queue USING btree (tx_hash) WHERE (reorg_id IS NOT NULL);
CREATE INDEX queue_reorg ON public.queue USING btree (reorg_id) WHERE (reorg_id IS NOT NULL);
CREATE INDEX queue_retry ON public.queue USING btree (shard_id, lane_id, due_at, id) WHERE ((state = 'waiting'::text) AND (retry_count > 0));
CREATE INDEX queue_retry_age ON public.queue USING btree (shard_id, lane_id, id) WHERE ((state = 'waiting'::text) AND (retry_count > 0));
CREATE INDEX queue_retry_due ON public.queue USING btree (shard_id, due_at) WHERE ((state = 'waiting'::text) AND (retry_count > 0));
CREATE INDEX queue_sequence ON public.queue USING btree (shard_id, watched_address_id, state DESC, sequence) WHERE (sequence IS NOT NULL);
comment on table queue is 'Notifications that are not finished';
comment on column queue.created_at is 'As notification.created_at: finds its partition';
comment on column queue.due_at is 'When its next attempt is due';
comment on column queue.state is 'held: waits for confirmations or for its sequence. waiting: an attempt is due or scheduled';
comment on column queue.release_number is 'Held until this block is stored; null once that was noticed';
comment on column queue.sequence is 'Position in the sequence of a record with strict_order';
comment on column queue.next_retry_at is 'When the retry schedule has its next attempt';
comment on column queue.redelivery_count is 'Redeliveries of its message that its watcher requested. The outcome of an earlier delivery does not count for a later one';
comment on column queue.revision is '0: the notification as first sent. Odd: its block was orphaned after an attempt, and a removal notice is sent. Even: it was mined again';
comment on column queue.reorg_id is 'Reorg that orphaned the transfer; null while it is on the canonical chain';
comment on column queue.tx_hash is 'Its transaction, while reorg_id is set';
comment on column queue.may_be_seen is 'Whether an attempt may have reached the receiver';
comment on column queue.unsent_epoch is 'No lease of its lane up to this epoch can have sent it';

create table receiver_failure (
  shard_id bigint not null,
  origin text not null,
  lane_id bigint not null,
  watcher_id bigint not null,
  since timestamp with time zone not null,
  attempts bigint not null,
  last_attempt_at timestamp with time zone not null,
  last_outcome text,
  last_status integer,
  constraint receiver_failure_pkey PRIMARY KEY (watcher_id, origin, shard_id)
);
comment on table receiver_failure is 'Delivery queues with failed notifications that wait for a retry. A receiver has one in each slice of its watcher';

create table receiver_window (
  unit "char" not null,
  started_at timestamp with time zone not null,
  previous timestamp with time zone,
  parts integer not null,
  built_parts integer not null,
  constraint receiver_window_pkey PRIMARY KEY (unit),
  constraint receiver_window_unit_check CHECK ((unit = ANY (ARRAY['H'::"char", 'D'::"char"])))
);
comment on table receiver_window is 'The windows in delivery_sum. They are built in parts of the receivers. Until all parts are built, the previous window is read';
comment on column receiver_window.unit is 'As in delivery_sum';
comment on column receiver_window.started_at is 'Start of the newest window, as in delivery_sum';
comment on column receiver_window.previous is 'Start of the window before, whose rows remain until the next one begins';

create table record_counting (
  only_row boolean not null default true,
  is_counted boolean not null default false,
  constraint record_counting_pkey PRIMARY KEY (only_row),
  constraint record_counting_only_row_check CHECK (only_row)
);
comment on table record_counting is 'One row: whether records are counted. Counting adds a small cost to each change';

create table record_delivery_sum (
  shard_id bigint not null,
  watched_address_id uuid not null,
  started_at timestamp with time zone not null,
  counters bigint[] not null,
  constraint record_delivery_sum_pkey PRIMARY KEY (shard_id, watched_address_id, started_at)
) partition by range (started_at);
comment on table record_delivery_sum is 'Deliveries of a record (watched address) by day (UTC). Partitioned by the day';
comment on column record_delivery_sum.counters is 'Counters 4 h to 4 h + 3: attempts, failed attempts, delivered, delivered with the first attempt, all in hour h of the day. From 128 on: time buckets of latencies';

create table referral (
  user_address bytea not null,
  referrer_address bytea not null,
  block_number bigint not null,
  log_index integer not null,
  linked_at timestamp(3) with time zone not null,
  constraint referral_pkey PRIMARY KEY (user_address, block_number, log_index),
  constraint referral_referrer_address_check CHECK ((octet_length(referrer_address) = 20)),
  constraint referral_user_address_check CHECK ((octet_length(user_address) = 20))
);
CREATE INDEX referral_block ON public.referral USING btree (block_number);
comment on table referral is 'Referrers of users, as events on the chain name them';
comment on column referral.log_index is 'Index of the log in its block';

create table reorg (
  id bigint not null generated always as identity,
  happened_at timestamp with time zone not null,
  ancestor_number bigint not null,
  constraint reorg_pkey PRIMARY KEY (id)
);
comment on table reorg is 'Reorgs that orphaned stored blocks';
comment on column reorg.ancestor_number is 'Newest block that stayed';

create table signing_secret (
  watcher_id bigint not null,
  number integer not null,
  ciphertext bytea not null,
  kek_id text not null,
  created_at timestamp with time zone not null,
  ends_at timestamp with time zone,
  constraint signing_secret_pkey PRIMARY KEY (watcher_id, number)
);
CREATE INDEX signing_secret_kek ON public.signing_secret USING btree (kek_id);
comment on table signing_secret is 'Secrets that sign the webhooks of a watcher';
comment on column signing_secret.ciphertext is 'An HMAC key and an ed25519 private key (AES-256-GCM)';
comment on column signing_secret.ends_at is 'Null for the newest; a rotation sets it for the others';

create table statistics_state (
  only_row boolean not null default true,
  counted_id bigint,
  counted_until timestamp with time zone,
  counted_from timestamp with time zone,
  constraint statistics_state_pkey PRIMARY KEY (only_row),
  constraint statistics_state_only_row_check CHECK (only_row)
);
comment on table statistics_state is 'One row: how far the attempts are added up. Its transaction also writes the sums';
comment on column statistics_state.counted_id is 'All attempts up to this id are in the sums. Null: the step empties the sums and adds up all stored attempts again';
comment on column statistics_state.counted_until is 'All attempts recorded before this time are in the sums';
comment on column statistics_state.counted_from is 'Start of the first attempt in the sums';

create table supply_balance (
  address bytea not null,
  wei numeric(78,0) not null,
  read_at timestamp with time zone not null,
  constraint supply_balance_pkey PRIMARY KEY (address),
  constraint supply_balance_address_check CHECK ((octet_length(address) = 20))
);
comment on table supply_balance is 'Newest known balance of each address of the supply';

create table supply_reading (
  only_row boolean not null default true,
  read_at timestamp with time zone not null,
  block_number bigint not null,
  block_hash bytea not null,
  node_name text not null,
  method text not null,
  constraint supply_reading_pkey PRIMARY KEY (only_row),
  constraint supply_reading_block_hash_check CHECK ((octet_length(block_hash) = 32)),
  constraint supply_reading_method_check CHECK ((method = ANY (ARRAY['multicall3'::text, 'eth_getBalance'::text]))),
  constraint supply_reading_only_row_check CHECK (only_row)
);
comment on table supply_reading is 'Last good reading of the supply, used while no node answers';
comment on column supply_reading.node_name is 'scheme://host';

create table swap (
  pair_id integer not null,
  block_number bigint not null,
  tx_hash bytea not null,
  ordinal integer not null,
  log_index integer not null,
  mined_at timestamp with time zone not null,
  amount0_in numeric(78,0) not null,
  amount1_in numeric(78,0) not null,
  amount0_out numeric(78,0) not null,
  amount1_out numeric(78,0) not null,
  usd_value numeric,
  price_id bigint,
  constraint swap_pkey PRIMARY KEY (block_number, tx_hash, ordinal),
  constraint swap_tx_hash_check CHECK ((octet_length(tx_hash) = 32))
);
CREATE INDEX swap_time ON public.swap USING btree (pair_id, mined_at) INCLUDE (usd_value);
CREATE INDEX swap_unvalued ON public.swap USING btree (pair_id, block_number) WHERE (usd_value IS NULL);
comment on table swap is 'Swap events';
comment on column swap.ordinal is 'Index of the log in its receipt';
comment on column swap.log_index is 'Index of the log in its block';
comment on column swap.usd_value is 'Value in USD at the price in force at the time. Never changes once set; null until there is such a price';

create table swap_volume (
  pair_id integer not null,
  started_at timestamp with time zone not null,
  usd_value numeric not null,
  swap_count bigint not null,
  constraint swap_volume_pkey PRIMARY KEY (pair_id, started_at)
);
comment on table swap_volume is 'Sums of swap.usd_value over five minutes';

create table watched_address (
  shard_id bigint not null,
  id uuid not null,
  watcher_id bigint not null,
  lane_id bigint not null,
  address bytea not null,
  watch_coin boolean not null,
  watch_token boolean not null,
  webhook_url text not null,
  created_at timestamp with time zone not null,
  updated_at timestamp with time zone not null,
  confirmations integer,
  direction text,
  min_amount numeric(78,0),
  tokens jsonb,
  removed boolean not null default false,
  strict_order boolean not null default false,
  constraint watched_address_pkey PRIMARY KEY (shard_id, id),
  constraint watched_address_address_check CHECK ((octet_length(address) = 20)),
  constraint watched_address_direction_check CHECK ((direction = ANY (ARRAY['in'::text, 'out'::text]))),
  constraint watched_address_tokens_check CHECK ((tokens <> '{}'::jsonb))
);
CREATE INDEX watched_address_address ON public.watched_address USING btree (address);
CREATE INDEX watched_address_listed ON public.watched_address USING btree (shard_id, created_at, id);
comment on table watched_address is 'Records: an address and the webhook URL for its transfers. Settings that are null or false keep the default behavior';
comment on column watched_address.id is 'Its last byte is its slice';
comment on column watched_address.lane_id is 'Delivery queue of the origin of webhook_url';
comment on column watched_address.confirmations is 'Confirmations to wait for; null: those of the configuration';
comment on column watched_address.min_amount is 'Smallest transfer of the native coin, in wei';
comment on column watched_address.tokens is 'Smallest amount by token contract; other tokens are left out';
comment on column watched_address.removed is 'Whether removal notices are sent';
comment on column watched_address.strict_order is 'Whether notifications are sent one after the other, in the order of the chain';

create table watcher (
  id bigint not null generated always as identity,
  name text not null,
  created_at timestamp with time zone not null,
  suspended_at timestamp with time zone,
  deleting_at timestamp with time zone,
  signs_v1a boolean not null default false,
  slices smallint not null default 1,
  constraint watcher_pkey PRIMARY KEY (id),
  constraint watcher_id_check CHECK (((id >= 1) AND (id <= '1099511627775'::bigint))),
  constraint watcher_name_key UNIQUE (name),
  constraint watcher_slices_check CHECK (((slices >= 1) AND (slices <= 256)))
);
comment on table watcher is 'Tenants: each owns API keys and watched addresses';
comment on column watcher.suspended_at is 'Since then its keys are refused and nothing is sent; null while it is active';
comment on column watcher.deleting_at is 'Since then it is being deleted, in batches';
comment on column watcher.signs_v1a is 'Whether its webhooks are also signed with ed25519';
comment on column watcher.slices is 'Slices among which its new records are spread. Each has a shard: shard_id is the watcher''s id plus 2^40 times the slice';

create table watcher_queue (
  watcher_id bigint not null,
  next_due timestamp with time zone,
  suspended boolean not null default false,
  constraint watcher_queue_pkey PRIMARY KEY (watcher_id)
);
CREATE INDEX watcher_queue_due ON public.watcher_queue USING btree (next_due) WHERE ((next_due IS NOT NULL) AND (NOT suspended));
CREATE INDEX watcher_queue_suspended ON public.watcher_queue USING btree (watcher_id) WHERE suspended;
comment on table watcher_queue is 'Watchers in the order in which workers visit them: the one visited longest ago first, each for a few lanes';
comment on column watcher_queue.next_due is 'When the next visit is due: not after the earliest due time of its lanes without an owner';
comment on column watcher_queue.suspended is 'As watcher.suspended_at, for workers, which never read that table';

create table watcher_usage (
  watcher_id bigint not null,
  records bigint not null,
  origins bigint not null,
  constraint watcher_usage_pkey PRIMARY KEY (watcher_id)
);
comment on table watcher_usage is 'Number of records of each watcher, and of receiver origins with records';

create view notification_status as
 SELECT n.shard_id,
    n.id,
    COALESCE(q.lane_id, w.lane_id) AS lane_id,
    n.watched_address_id,
    (n.shard_id & '1099511627775'::bigint) AS watcher_id,
        CASE n.kind
            WHEN 'c'::"char" THEN 'transaction'::text
            WHEN 'i'::"char" THEN 'internal'::text
            ELSE 'token'::text
        END AS kind,
    n.tx_hash,
    n.ordinal,
    n.occurrence,
    n.sender,
    n.receiver,
    n.amount,
    n.token,
    n.block_number,
    n.created_at,
    COALESCE(q.state, e.state, 'processed'::text) AS state,
    q.release_number,
    COALESCE(q.sequence, e.sequence) AS sequence,
    COALESCE(q.due_at, n.created_at) AS next_attempt_at,
    COALESCE(q.next_retry_at, e.next_retry_at) AS next_retry_at,
    COALESCE(q.retry_count, e.retry_count, 0) AS retry_count,
    COALESCE(q.redelivery_count, e.redelivery_count, 0) AS redelivery_count,
        CASE
            WHEN (q.id IS NOT NULL) THEN NULL::timestamp with time zone
            WHEN (e.id IS NOT NULL) THEN
            CASE e.state
                WHEN 'processed'::text THEN e.ended_at
                ELSE NULL::timestamp with time zone
            END
            ELSE ( SELECT max((a.started_at + ((a.duration_ms)::double precision * '00:00:00.001'::interval))) AS max
               FROM delivery_attempt a
              WHERE ((a.notification_id = n.id) AND (a.shard_id = n.shard_id) AND (a.outcome = 'success'::text) AND (a.started_at >= (n.created_at - '1 day'::interval))))
        END AS processed_at,
    COALESCE(q.revision, e.revision, 0) AS revision,
    COALESCE(q.reorg_id, e.reorg_id) AS reorg_id,
    n.replaces,
        CASE
            WHEN (q.id IS NOT NULL) THEN q.may_be_seen
            WHEN (e.id IS NOT NULL) THEN e.may_be_seen
            ELSE true
        END AS may_be_seen,
    COALESCE(q.unsent_epoch, (0)::bigint) AS unsent_epoch,
    md5((ROW(n.block_number, n.ordinal, n.occurrence, q.state, q.lane_id, q.due_at, q.release_number, q.sequence, q.next_retry_at, q.retry_count, q.redelivery_count, q.revision, q.reorg_id, q.may_be_seen, q.unsent_epoch, e.state, e.ended_at, e.sequence, e.next_retry_at, e.retry_count, e.redelivery_count, e.revision, e.reorg_id, e.may_be_seen))::text) AS version
   FROM (((notification n
     LEFT JOIN queue q ON (((q.shard_id = n.shard_id) AND (q.id = n.id))))
     LEFT JOIN ended e ON (((e.shard_id = n.shard_id) AND (e.id = n.id))))
     LEFT JOIN watched_address w ON (((w.shard_id = n.shard_id) AND (w.id = n.watched_address_id))));
