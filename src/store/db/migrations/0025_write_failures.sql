-- What the process can't store at its last heartbeat: part, message and since when.
alter table process add column write_failures jsonb not null default '[]';
