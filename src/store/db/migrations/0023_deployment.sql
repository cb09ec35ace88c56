-- Heartbeats: each process writes its row every few seconds. Only the primary key is indexed and pages are half empty, so that an
-- update stays on its page.
create table process (
  id text primary key,
  roles text[] not null,
  version text not null,
  host text not null,
  pid integer not null,
  started_at timestamptz not null,
  seen_at timestamptz not null,
  -- Counts up with each heartbeat, whatever the clock does.
  beat bigint not null,
  stopped boolean not null default false,
  -- Whether it is the follower that leads; what follows is null for processes without that role.
  leads boolean not null default false,
  follower_state text,
  head bigint,
  problem text,
  problem_since timestamptz
) with (fillfactor = 50);

-- Receivers with failed attempts. `store/delivery/receivers.ts` removes those for which nothing waits for a retry any more.
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
  primary key (shard_id, origin)
) with (fillfactor = 50);

-- The oldest notification of a receiver that failed, and the watcher's retry that is the most overdue.
create index notification_retry_age on notification (shard_id, lane_id, id) where state = 'waiting' and retry_count > 0;
create index notification_retry_due on notification (shard_id, next_attempt_at) where state = 'waiting' and retry_count > 0;

insert into receiver_failure (shard_id, origin, lane_id, watcher_id, since, attempts, last_attempt_at)
select l.shard_id, l.origin, l.id, l.watcher_id, min(n.created_at), sum(n.retry_count), now()
from notification n join lane l on l.id = n.lane_id
where n.state = 'waiting' and n.retry_count > 0
group by l.id;
