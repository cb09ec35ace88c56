-- First attempts and retries are read apart: a million retries of a dead endpoint hide nothing that is new.
drop index notification_due;
create index notification_first on notification (shard_id, lane_id, next_attempt_at, id)
  where state = 'waiting' and retry_count = 0;
create index notification_retry on notification (shard_id, lane_id, next_attempt_at, id)
  where state = 'waiting' and retry_count > 0;
