-- Lets tests insert, update and delete through the view `notification_status`, as if each notification were one row.
create schema test_kit;
create function test_kit.edit_notification() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' or tg_op = 'UPDATE' then
    delete from queue where shard_id = old.shard_id and id = old.id;
    delete from ended where shard_id = old.shard_id and id = old.id;
  end if;
  if tg_op = 'DELETE' then
    delete from notification where shard_id = old.shard_id and id = old.id;
    return old;
  end if;
  if tg_op = 'UPDATE' then
    if old is distinct from new then
      update notification set watched_address_id = new.watched_address_id, tx_hash = new.tx_hash, ordinal = new.ordinal,
      occurrence = new.occurrence, sender = new.sender, receiver = new.receiver, amount = new.amount, token = new.token,
      block_number = new.block_number, created_at = new.created_at, replaces = new.replaces,
      kind = (case when new.kind = 'transaction' then 'c' when new.kind = 'internal' then 'i' else 't' end)::"char"
    where shard_id = old.shard_id and id = old.id;
    end if;
  else
    new.id := coalesce(new.id, nextval('notification_id_seq'));
    insert into notification (shard_id, id, created_at, block_number, ordinal, occurrence, kind, watched_address_id, tx_hash,
      sender, receiver, token, amount, replaces)
    values (new.shard_id, new.id, new.created_at, new.block_number, new.ordinal, coalesce(new.occurrence, 0),
      (case when new.kind = 'transaction' then 'c' when new.kind = 'internal' then 'i' else 't' end)::"char", new.watched_address_id,
      new.tx_hash, new.sender, new.receiver, new.token, new.amount, new.replaces);
  end if;
  if new.state in ('held', 'waiting') then
    insert into queue (shard_id, id, created_at, lane_id, due_at, watched_address_id, state, release_number, sequence,
      next_retry_at, retry_count, redelivery_count, revision, reorg_id, tx_hash, may_be_seen, unsent_epoch)
    values (new.shard_id, new.id, new.created_at, new.lane_id, new.next_attempt_at, new.watched_address_id, new.state,
      new.release_number, new.sequence, new.next_retry_at, coalesce(new.retry_count, 0), coalesce(new.redelivery_count, 0),
      coalesce(new.revision, 0), new.reorg_id, case when new.reorg_id is not null then new.tx_hash end,
      coalesce(new.may_be_seen, false), coalesce(new.unsent_epoch, 0));
  else
    insert into ended (shard_id, id, created_at, state, ended_at, sequence, next_retry_at, retry_count, redelivery_count,
      revision, reorg_id, tx_hash, may_be_seen)
    values (new.shard_id, new.id, new.created_at, new.state,
      case when new.state = 'processed' then new.processed_at else coalesce(new.processed_at, new.next_attempt_at) end, new.sequence, new.next_retry_at,
      coalesce(new.retry_count, 0), coalesce(new.redelivery_count, 0), coalesce(new.revision, 0), new.reorg_id,
      case when new.reorg_id is not null then new.tx_hash end, coalesce(new.may_be_seen, false));
  end if;
  return new;
end
$$;
create trigger edit_notification instead of insert or update or delete on notification_status
  for each row execute function test_kit.edit_notification();
