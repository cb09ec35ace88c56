-- How many requests an attempt made: 2 when the receiver was just closing the kept connection of the first.
alter table delivery_attempt add column request_count smallint not null default 1;

-- Records by watcher and by lane, for limits. Kept while `is_counted`, by triggers, so that no path can forget it.
create table record_counting (
  only_row boolean primary key default true check (only_row),
  is_counted boolean not null default false
);
insert into record_counting default values;

-- `origins` are the lanes with records.
create table watcher_usage (
  watcher_id bigint primary key,
  records bigint not null,
  origins bigint not null
) with (fillfactor = 50);

create table lane_usage (
  lane_id bigint primary key,
  watcher_id bigint not null,
  records bigint not null
) with (fillfactor = 50);

-- Adds (argument 1) or takes off (-1) the changed rows. The watcher's row comes first, as for those who ask for the count.
create function count_records() returns trigger language plpgsql as $$
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
$$;

create trigger count_inserted after insert on watched_address referencing new table as changed
  for each statement execute function count_records('1');
create trigger count_deleted after delete on watched_address referencing old table as changed
  for each statement execute function count_records('-1');
create trigger count_updated_from after update on watched_address referencing old table as changed
  for each statement execute function count_records('-1');
create trigger count_updated_to after update on watched_address referencing new table as changed
  for each statement execute function count_records('1');
