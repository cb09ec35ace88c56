-- Reorgs, and the blocks that each one orphaned.
create table reorg (
  id bigint generated always as identity primary key,
  happened_at timestamptz not null,
  -- The newest block that stayed.
  ancestor_number bigint not null
);
create table orphaned_block (
  reorg_id bigint not null references reorg (id),
  number bigint not null,
  hash bytea not null check (octet_length(hash) = 32),
  primary key (reorg_id, number)
);

-- occurrence: which of several equal transfers of one transaction this is, from 0 on.
-- reorg_id: the reorg that orphaned the transfer; null while it is on the canonical chain.
-- replaces: the notification whose transfer this one stands in for, after its transaction was mined again otherwise.
-- may_be_seen: an attempt may have reached the receiver.
-- unsent_epoch: leases of the lane up to this epoch can't have sent it.
alter table notification
  add column occurrence integer not null default 0,
  add column reorg_id bigint,
  add column replaces bigint,
  add column may_be_seen boolean not null default false,
  add column unsent_epoch bigint not null default 0;
-- A worker reads 0 and more: any other count would never be sent.
alter table notification add constraint notification_retry_count_check check (retry_count >= 0);
alter table delivery_attempt add column revision integer not null default 0;

update notification n set occurrence = o.occurrence
from (
  select shard_id, id, row_number() over (
    partition by shard_id, watched_address_id, tx_hash, kind, sender, receiver, token, amount order by ordinal
  ) - 1 as occurrence
  from notification
) o
where n.shard_id = o.shard_id and n.id = o.id and o.occurrence > 0;
-- Without a record of what was sent before, everything that was due may have been seen.
update notification set may_be_seen = true
where state in ('waiting', 'processed') or retry_count > 0 or revision > 0 or redelivery_count > 0;
with past as (
  insert into reorg (happened_at, ancestor_number)
  select clock_timestamp(), min(block_number) - 1 from notification
  where state = 'withdrawn' or revision % 2 = 1
  having count(*) > 0
  returning id
)
update notification set reorg_id = past.id from past where state = 'withdrawn' or revision % 2 = 1;

-- The identity of a notification: what the transfer says, not where in its transaction it stands.
alter table notification
  add column content bytea not null generated always as (
    substr(sha256(
      case kind when 'transaction' then '\x00'::bytea when 'internal' then '\x01'::bytea else '\x02'::bytea end
      || sender || coalesce(receiver, ''::bytea) || coalesce(token, ''::bytea) || numeric_send(amount) || int4send(occurrence)
    ), 1, 16)) stored;
alter table notification drop constraint notification_transaction;
alter table notification add constraint notification_content unique (tx_hash, content, watched_address_id, shard_id);
-- A reorg looks for what it has orphaned.
create index notification_reorg on notification (reorg_id) where reorg_id is not null;
