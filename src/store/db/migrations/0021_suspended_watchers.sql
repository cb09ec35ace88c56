-- Operators suspend and delete watchers. A suspended watcher's keys are refused, and its queues are not leased.
alter table watcher add column suspended_at timestamptz, add column deleting_at timestamptz;
-- The same for workers, in the row that a lease visits: they never read the table of watchers.
alter table watcher_queue add column suspended boolean not null default false;
drop index watcher_queue_due;
create index watcher_queue_due on watcher_queue (next_due) where next_due is not null and not suspended;
create index watcher_queue_suspended on watcher_queue (watcher_id) where suspended;
