-- Watchers take turns: a lease visits the watchers with something due, the one visited longest ago first, and takes some
-- of its lanes. Until now each watcher has had one shard, whose number is the watcher's.
alter table lane add column watcher_id bigint;
update lane set watcher_id = shard_id;
alter table lane alter column watcher_id set not null;

drop index lane_due;
-- Without leased lanes, which a lease would walk over.
create index lane_watcher_due on lane (watcher_id, next_due) where next_due is not null and owner is null;

-- When the next visit of the watcher is due: not after the earliest due time of its lanes without an owner.
create table watcher_queue (
  watcher_id bigint primary key,
  next_due timestamptz
) with (fillfactor = 50);
create index watcher_queue_due on watcher_queue (next_due) where next_due is not null;
insert into watcher_queue (watcher_id, next_due) select watcher_id, min(next_due) from lane group by watcher_id;
