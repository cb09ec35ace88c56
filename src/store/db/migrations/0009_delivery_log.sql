-- How often a notification was delivered again because its watcher asked: the outcome of an earlier delivery does not
-- count for a later one.
alter table notification add column redelivery_count integer not null default 0;
-- What will never be delivered is deleted at its age, too.
create index notification_ended on notification (next_attempt_at) where state in ('withdrawn', 'cancelled');
-- For the log's time range, as notification_block for its range of blocks: rows lie in the order of their making.
create index notification_created on notification using brin (created_at) with (autosummarize = on);
