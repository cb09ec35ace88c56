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

create table api_key (
  id text not null,
  watcher_id bigint not null,
  lookup bytea not null,
  ciphertext bytea not null,
  kek_id text not null,
  created_at timestamp with time zone not null,
  revoked_at timestamp with time zone,
  constraint api_key_pkey PRIMARY KEY (id),
  constraint api_key_lookup_key UNIQUE (lookup),
  constraint api_key_watcher_id_fkey FOREIGN KEY (watcher_id) REFERENCES watcher(id)
);
CREATE INDEX api_key_watcher ON public.api_key USING btree (watcher_id, created_at DESC);

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

create table chain (
  only_row boolean not null default true,
  chain_id bigint not null,
  genesis_hash bytea,
  start_number bigint,
  finalized_number bigint not null default 0,
  enforced_checks text[] not null default '{}'::text[],
  corroborated_number bigint,
  constraint chain_pkey PRIMARY KEY (only_row),
  constraint chain_only_row_check CHECK (only_row)
);

create table clock_state (
  only_row boolean not null default true,
  steps_ms bigint not null default 0,
  last_step_ms bigint,
  last_step_at timestamp with time zone,
  prune_from timestamp with time zone,
  probed_at timestamp with time zone,
  constraint clock_state_pkey PRIMARY KEY (only_row),
  constraint clock_state_only_row_check CHECK (only_row)
);

create table deferred_match (
  id bigint not null generated always as identity,
  watcher_id bigint not null,
  block_number bigint not null,
  address bytea not null,
  record_ids uuid[] not null,
  matches jsonb not null,
  is_met boolean not null,
  constraint deferred_match_pkey PRIMARY KEY (id),
  constraint deferred_match_address_check CHECK ((octet_length(address) = 20))
);
CREATE INDEX deferred_match_block ON public.deferred_match USING btree (block_number);
CREATE INDEX deferred_match_watcher ON public.deferred_match USING btree (watcher_id, id);

create table delivery_attempt (
  shard_id bigint not null,
  id bigint not null generated always as identity,
  notification_id bigint not null,
  started_at timestamp with time zone not null,
  duration_ms integer not null,
  outcome text not null,
  status integer,
  response text,
  revision integer not null default 0,
  request_count smallint not null default 1,
  constraint delivery_attempt_pkey PRIMARY KEY (shard_id, id)
);
CREATE INDEX delivery_attempt_notification ON public.delivery_attempt USING btree (shard_id, notification_id, id);
CREATE INDEX delivery_attempt_started ON public.delivery_attempt USING btree (started_at);

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

create table lane (
  id bigint not null generated always as identity,
  shard_id bigint not null,
  origin text not null,
  next_due timestamp with time zone,
  owner integer,
  epoch bigint not null default 0,
  lease_until timestamp with time zone,
  watcher_id bigint not null,
  constraint lane_pkey PRIMARY KEY (id),
  constraint lane_shard_id_origin_key UNIQUE (shard_id, origin)
);
CREATE INDEX lane_owned ON public.lane USING btree (owner) WHERE (owner IS NOT NULL);
CREATE INDEX lane_watcher_due ON public.lane USING btree (watcher_id, next_due) WHERE ((next_due IS NOT NULL) AND (owner IS NULL));

create table lane_usage (
  lane_id bigint not null,
  watcher_id bigint not null,
  records bigint not null,
  constraint lane_usage_pkey PRIMARY KEY (lane_id)
);

create table migration (
  id integer not null,
  name text not null,
  applied_at timestamp with time zone not null,
  constraint migration_pkey PRIMARY KEY (id)
);

create table notification (
  shard_id bigint not null,
  id bigint not null generated always as identity,
  lane_id bigint not null,
  watched_address_id uuid not null,
  watcher_id bigint not null,
  kind text not null,
  tx_hash bytea not null,
  ordinal integer not null,
  sender bytea not null,
  receiver bytea,
  amount numeric(78,0) not null,
  token bytea,
  block_number bigint not null,
  state text not null,
  retry_count integer not null default 0,
  next_retry_at timestamp with time zone,
  next_attempt_at timestamp with time zone not null,
  created_at timestamp with time zone not null,
  processed_at timestamp with time zone,
  redelivery_count integer not null default 0,
  release_number bigint,
  turn bigint,
  revision integer not null default 0,
  occurrence integer not null default 0,
  reorg_id bigint,
  replaces bigint,
  may_be_seen boolean not null default false,
  unsent_epoch bigint not null default 0,
  content bytea not null generated always as (substr(sha256((((((
CASE kind
    WHEN 'transaction'::text THEN '\x00'::bytea
    WHEN 'internal'::text THEN '\x01'::bytea
    ELSE '\x02'::bytea
END || sender) || COALESCE(receiver, '\x'::bytea)) || COALESCE(token, '\x'::bytea)) || numeric_send(amount)) || int4send(occurrence))), 1, 16)) stored,
  constraint notification_pkey PRIMARY KEY (shard_id, id),
  constraint notification_content UNIQUE (tx_hash, content, watched_address_id, shard_id),
  constraint notification_kind_check CHECK ((kind = ANY (ARRAY['transaction'::text, 'internal'::text, 'token'::text]))),
  constraint notification_retry_count_check CHECK ((retry_count >= 0)),
  constraint notification_state_check CHECK ((state = ANY (ARRAY['held'::text, 'waiting'::text, 'processed'::text, 'withdrawn'::text, 'cancelled'::text]))),
  constraint notification_tx_hash_check CHECK ((octet_length(tx_hash) = 32))
);
CREATE INDEX notification_block ON public.notification USING brin (block_number) WITH (autosummarize='on');
CREATE INDEX notification_created ON public.notification USING brin (created_at) WITH (autosummarize='on');
CREATE INDEX notification_ended ON public.notification USING btree (next_attempt_at) WHERE (state = ANY (ARRAY['withdrawn'::text, 'cancelled'::text]));
CREATE INDEX notification_first ON public.notification USING btree (shard_id, lane_id, next_attempt_at, id) WHERE ((state = 'waiting'::text) AND (retry_count = 0));
CREATE INDEX notification_held ON public.notification USING btree (release_number) WHERE (state = 'held'::text);
CREATE INDEX notification_processed ON public.notification USING btree (processed_at) WHERE (state = 'processed'::text);
CREATE INDEX notification_record ON public.notification USING btree (shard_id, watched_address_id, id);
CREATE INDEX notification_reorg ON public.notification USING btree (reorg_id) WHERE (reorg_id IS NOT NULL);
CREATE INDEX notification_retry ON public.notification USING btree (shard_id, lane_id, next_attempt_at, id) WHERE ((state = 'waiting'::text) AND (retry_count > 0));
CREATE INDEX notification_retry_age ON public.notification USING btree (shard_id, lane_id, id) WHERE ((state = 'waiting'::text) AND (retry_count > 0));
CREATE INDEX notification_retry_due ON public.notification USING btree (shard_id, next_attempt_at) WHERE ((state = 'waiting'::text) AND (retry_count > 0));
CREATE INDEX notification_turn ON public.notification USING btree (shard_id, watched_address_id, state DESC, turn) WHERE ((turn IS NOT NULL) AND (state = ANY (ARRAY['held'::text, 'waiting'::text])));

create table orphaned_block (
  reorg_id bigint not null,
  number bigint not null,
  hash bytea not null,
  constraint orphaned_block_pkey PRIMARY KEY (reorg_id, number),
  constraint orphaned_block_hash_check CHECK ((octet_length(hash) = 32)),
  constraint orphaned_block_reorg_id_fkey FOREIGN KEY (reorg_id) REFERENCES reorg(id)
);

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
  constraint pair_pkey PRIMARY KEY (id),
  constraint pair_address_check CHECK ((octet_length(address) = 20)),
  constraint pair_address_key UNIQUE (address),
  constraint pair_backfill_hash_check CHECK ((octet_length(backfill_hash) = 32)),
  constraint pair_token0_check CHECK ((octet_length(token0) = 20)),
  constraint pair_token1_check CHECK ((octet_length(token1) = 20)),
  constraint pair_usd_value_from_check CHECK ((usd_value_from = ANY (ARRAY[0, 1])))
);

create table pair_reading (
  pair_id integer not null,
  block_number bigint not null,
  total_supply numeric(78,0) not null,
  k_last numeric(78,0) not null,
  is_fee_on boolean not null,
  constraint pair_reading_pkey PRIMARY KEY (pair_id, block_number)
);
CREATE INDEX pair_reading_block ON public.pair_reading USING btree (block_number);

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
CREATE INDEX pair_state_liquidity ON public.pair_state USING btree (pair_id, block_number) WHERE (liquidity_k IS NOT NULL);
CREATE INDEX pair_state_time ON public.pair_state USING btree (pair_id, mined_at DESC);

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

create table price (
  id bigint not null generated always as identity,
  asset text not null,
  price numeric not null,
  observed_at timestamp with time zone not null,
  source text not null,
  constraint price_pkey PRIMARY KEY (id),
  constraint price_price_check CHECK ((price > (0)::numeric))
);
CREATE INDEX price_asset ON public.price USING btree (asset, observed_at DESC, id DESC);

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

create table process (
  id text not null,
  roles text[] not null,
  version text not null,
  host text not null,
  pid integer not null,
  started_at timestamp with time zone not null,
  seen_at timestamp with time zone not null,
  beat bigint not null,
  stopped boolean not null default false,
  leads boolean not null default false,
  follower_state text,
  head bigint,
  problem text,
  problem_since timestamp with time zone,
  write_failures jsonb not null default '[]'::jsonb,
  constraint process_pkey PRIMARY KEY (id)
);

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
  constraint receiver_failure_pkey PRIMARY KEY (shard_id, origin)
);

create table record_counting (
  only_row boolean not null default true,
  is_counted boolean not null default false,
  constraint record_counting_pkey PRIMARY KEY (only_row),
  constraint record_counting_only_row_check CHECK (only_row)
);

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

create table reorg (
  id bigint not null generated always as identity,
  happened_at timestamp with time zone not null,
  ancestor_number bigint not null,
  constraint reorg_pkey PRIMARY KEY (id)
);

create table signing_secret (
  watcher_id bigint not null,
  number integer not null,
  ciphertext bytea not null,
  kek_id text not null,
  created_at timestamp with time zone not null,
  ends_at timestamp with time zone,
  constraint signing_secret_pkey PRIMARY KEY (watcher_id, number)
);

create table supply_balance (
  address bytea not null,
  wei numeric(78,0) not null,
  read_at timestamp with time zone not null,
  constraint supply_balance_pkey PRIMARY KEY (address),
  constraint supply_balance_address_check CHECK ((octet_length(address) = 20))
);

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

create table swap (
  pair_id integer not null,
  block_number bigint not null,
  tx_hash bytea not null,
  ordinal integer not null,
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

create table swap_volume (
  pair_id integer not null,
  started_at timestamp with time zone not null,
  usd_value numeric not null,
  swap_count bigint not null,
  constraint swap_volume_pkey PRIMARY KEY (pair_id, started_at)
);

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
CREATE TRIGGER count_deleted AFTER DELETE ON public.watched_address REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_records('-1');
CREATE TRIGGER count_inserted AFTER INSERT ON public.watched_address REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_records('1');
CREATE TRIGGER count_updated_from AFTER UPDATE ON public.watched_address REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_records('-1');
CREATE TRIGGER count_updated_to AFTER UPDATE ON public.watched_address REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_records('1');

create table watcher (
  id bigint not null generated always as identity,
  name text not null,
  created_at timestamp with time zone not null,
  suspended_at timestamp with time zone,
  deleting_at timestamp with time zone,
  constraint watcher_pkey PRIMARY KEY (id),
  constraint watcher_name_key UNIQUE (name)
);

create table watcher_queue (
  watcher_id bigint not null,
  next_due timestamp with time zone,
  suspended boolean not null default false,
  constraint watcher_queue_pkey PRIMARY KEY (watcher_id)
);
CREATE INDEX watcher_queue_due ON public.watcher_queue USING btree (next_due) WHERE ((next_due IS NOT NULL) AND (NOT suspended));
CREATE INDEX watcher_queue_suspended ON public.watcher_queue USING btree (watcher_id) WHERE suspended;

create table watcher_usage (
  watcher_id bigint not null,
  records bigint not null,
  origins bigint not null,
  constraint watcher_usage_pkey PRIMARY KEY (watcher_id)
);

CREATE OR REPLACE FUNCTION public.count_records()
 RETURNS trigger
 LANGUAGE plpgsql
AS $function$
begin
  if not (select is_counted from record_counting) then return null; end if;
  insert into watcher_usage (watcher_id, records, origins)
  select distinct watcher_id, 0, 0 from changed order by watcher_id
  on conflict (watcher_id) do update set records = watcher_usage.records;
  with deltas as (
    select lane_id, watcher_id, count(*) * tg_argv[0]::bigint as delta from changed group by lane_id, watcher_id
  ), counted as (
    insert into lane_usage as u (lane_id, watcher_id, records)
    select lane_id, watcher_id, delta from deltas order by lane_id
    on conflict (lane_id) do update set records = u.records + excluded.records
    returning lane_id, records
  ), sums as (
    select watcher_id, sum(delta) as records, sum((c.records > 0)::int - (c.records - delta > 0)::int) as origins
    from deltas join counted c using (lane_id) group by watcher_id
  )
  update watcher_usage u set records = u.records + s.records, origins = u.origins + s.origins
  from sums s where u.watcher_id = s.watcher_id;
  return null;
end
$function$;
