/**
 * The contents of the database in the form that the oracle compares: numbers for times, hex for bytes, text for amounts.
 */
import type { Address, Hash } from '../../src/core/hex.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';

export type StoredLane = {
  id: number;
  shard: number;
  origin: string;
  owner: number | null;
  epoch: number;
  lease_ms: number | null;
};

export type StoredNotification = {
  id: number;
  record: string;
  kind: string;
  hash: Hash;
  ordinal: number;
  sender: Address;
  receiver: Address | null;
  amount: string;
  token: Address | null;
  block: number;
  state: string;
  occurrence: number;
  /** Whether a reorg must assume that a receiver has seen it. */
  seen: boolean;
  orphaned: boolean;
  revision: number;
  redelivery: number;
  retries: number;
  retry_ms: number | null;
  created_ms: number;
  /** Whether it is held until a block, whether or not that one is stored. */
  unreleased: boolean;
};

export type StoredState = {
  blocks: { number: number; hash: Hash; parent: Hash }[];
  lanes: StoredLane[];
  notifications: StoredNotification[];
  /** Matches whose notifications are not written yet. */
  deferred: { id: number; block: number; records: string[] }[];
  /** The attempts after the last one that was read. */
  attempts: { id: number; notification: number; started_ms: number; outcome: string }[];
  /** All attempts that the log has. */
  attemptIds: number[];
};

/** One statement, because it runs after every turn that wrote. */
export async function readState(database: Database, afterAttempt: number): Promise<StoredState> {
  const [state] = await database.query<StoredState>(sql`
    select
      (select coalesce(json_agg(b order by b.number), '[]') from (
        select number, '0x' || encode(hash, 'hex') as hash, '0x' || encode(parent_hash, 'hex') as parent from block
      ) as b) as blocks,
      (select coalesce(json_agg(l order by l.id), '[]') from (
        select id, shard_id as shard, origin, owner, epoch, ${trueMsOf(sql`lease_until`)} as lease_ms from lane
      ) as l) as lanes,
      (select coalesce(json_agg(n order by n.id), '[]') from (
        select id, watched_address_id as record, kind, '0x' || encode(tx_hash, 'hex') as hash, ordinal,
          '0x' || encode(sender, 'hex') as sender, '0x' || encode(receiver, 'hex') as receiver, amount::text as amount,
          '0x' || encode(token, 'hex') as token, block_number as block, state, revision,
          occurrence, may_be_seen as seen, reorg_id is not null as orphaned,
          redelivery_count as redelivery, retry_count as retries, ${trueMsOf(sql`next_retry_at`)} as retry_ms,
          ${millisecondsOf(sql`created_at`)} as created_ms, release_number is not null as unreleased
        from notification_status
      ) as n) as notifications,
      (select coalesce(json_agg(d order by d.id), '[]') from (
        select d.id, d.block_number as block, array(
          select r.id from deferred_records g cross join lateral unnest(g.record_ids) with ordinality as r (id, place)
          where g.group_id = d.id order by g.part, place
          limit case when notifications_left > records_left * match_count then d.records else records_left end) as records
        from deferred_match d join deferred_transfers t on t.set_id = d.set_id and t.part = d.part
      ) as d) as deferred,
      (select coalesce(json_agg(a order by a.id), '[]') from (
        select id, notification_id as notification, ${millisecondsOf(sql`started_at`)} as started_ms, outcome
        from delivery_attempt where id > ${afterAttempt}
      ) as a) as attempts,
      (select coalesce(json_agg(id), '[]') from delivery_attempt) as "attemptIds"`);
  if (state === undefined) throw new Error('the statement returned no row');
  return state;
}

const millisecondsOf = (column: ReturnType<typeof sql>) =>
  sql`(extract(epoch from ${column}) * 1000)::bigint`;

/** Without the steps that the schedule has followed. */
const trueMsOf = (column: ReturnType<typeof sql>) =>
  sql`${millisecondsOf(column)} - (select steps_ms from clock_state)`;
