-- How far the schedule has followed steps of the clock that all processes share. One row.
create table clock_state (
  only_row boolean primary key default true check (only_row),
  -- All steps added up: a process that has followed others leases and reads nothing until it has followed these.
  steps_ms bigint not null default 0,
  last_step_ms bigint,
  last_step_at timestamptz,
  -- After a step nothing is pruned before this time.
  prune_from timestamptz,
  -- Written by the probe of /readyz.
  probed_at timestamptz
);
insert into clock_state default values;
