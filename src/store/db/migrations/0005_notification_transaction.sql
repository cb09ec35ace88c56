-- A transaction's notifications lie together: one look-up tells whether a transaction was met before, and an insert
-- meets ten neighbours instead of ten far pages. What one record has is found by an index of its own, newest last.
do $$
declare
  old text;
begin
  select conname into strict old from pg_constraint where conrelid = 'notification'::regclass and contype = 'u';
  execute format('alter table notification drop constraint %I', old);
end
$$;
alter table notification add constraint notification_transaction
  unique (tx_hash, kind, ordinal, watched_address_id, shard_id);
create index notification_record on notification (shard_id, watched_address_id, id);
