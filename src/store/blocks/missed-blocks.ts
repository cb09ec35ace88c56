/**
 * The blocks that lost shards miss (db/lost-shards.ts): stored with the block, in its transaction.
 */
import type { Address } from '../../core/hex.ts';
import { sidesOf, type Transfer } from '../../domain/block.ts';
import { listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { type LostShards, listLost } from '../db/lost-shards.ts';
import { sql } from '../db/sql.ts';
import { LANE_CHANNEL, REORG_PREFIX } from '../delivery/lanes.ts';
import { amountAsText, type StoredTransfer, toTransfer } from '../matching/deferred.ts';
import type { MatchedBlock, MatchedTransfer, Narrow } from '../matching/matching.ts';

/** Remembers which addresses an address filter passed: lost shards may watch one of these. */
export function createCandidates(filter: Narrow | undefined): {
  narrow: Narrow | undefined;
  /** The transfers of these addresses; without a filter all. */
  among(blocks: readonly MatchedBlock[]): MatchedTransfer[];
} {
  let narrowed: readonly Address[] | undefined;
  return {
    narrow:
      filter &&
      (async (tx, addresses) => {
        narrowed = await filter(tx, addresses);
        return narrowed;
      }),
    among(blocks) {
      const passed = narrowed && new Set(narrowed);
      return blocks.flatMap(({ header, transfers }) =>
        transfers
          .filter((transfer) => passed === undefined || sidesOf(transfer).some((side) => passed.has(side)))
          .map((transfer) => ({ transfer, block: header.number })),
      );
    },
  };
}

/**
 * Stores what all lost shards miss of these blocks. After a reorg, blocks that they miss are no longer canonical, or they have
 * some that are not.
 */
export async function storeMissed(
  tx: Tx,
  { blocks, transfers }: { blocks: readonly MatchedBlock[]; transfers: readonly MatchedTransfer[] },
  reorg: { reorgId: number; ancestorNumber: number } | undefined,
): Promise<void> {
  if (reorg !== undefined) {
    const { reorgId, ancestorNumber } = reorg;
    await tx.query(sql`delete from missed_block where number > ${ancestorNumber}`);
    const behind = await tx.query(sql`
      update lost_shards set block_number = ${ancestorNumber}, reorg_ids = reorg_ids || ${reorgId}::bigint
      where block_number > ${ancestorNumber} returning id`);
    // Processes drop what they have read from these shards. `listDue` reads nothing there until they have caught up.
    if (behind.length > 0) await tx.query(sql`select pg_notify(${LANE_CHANNEL}, ${`${REORG_PREFIX}*`})`);
  }
  const transfersOf = Map.groupBy(transfers, ({ block }) => block);
  const numbers = blocks.map(({ header }) => header.number);
  const texts = numbers.map((number) =>
    JSON.stringify(
      (transfersOf.get(number) ?? []).map(({ transfer }) => transfer),
      amountAsText,
    ),
  );
  await tx.query(sql`
    insert into missed_block (number, transfers)
    select number, transfers::jsonb from unnest(${listOf(numbers)}::bigint[], ${texts}::text[]) as b (number, transfers)
    on conflict (number) do update set transfers = excluded.transfers`);
}

/** Missed blocks above a number, up to `blocksMax`, and no more after `transfersMax` transfers. */
export async function listMissed(
  tx: Tx,
  { above, blocksMax, transfersMax }: { above: number; blocksMax: number; transfersMax: number },
): Promise<{ header: { number: number }; transfers: Transfer[] }[]> {
  const rows = await tx.query<{ number: number; transfers: StoredTransfer[] }>(sql`
    select number, transfers from (
      select number, transfers, sum(jsonb_array_length(transfers)) over (order by number) - jsonb_array_length(transfers) as before
      from (select * from missed_block where number > ${above} order by number limit ${blocksMax}) as next) as summed
    where before < ${transfersMax} order by number`);
  return rows.map(({ number, transfers }) => ({ header: { number }, transfers: transfers.map(toTransfer) }));
}

/** Notes that the shards have all canonical blocks up to this one, and forgets them when they miss no further one. Returns whether they do. */
export async function raiseLost(tx: Tx, { id }: LostShards, number: number): Promise<boolean> {
  const further = await tx.query(sql`select from missed_block where number > ${number} limit 1`);
  if (further.length > 0)
    await tx.query(sql`update lost_shards set block_number = ${number}, reorg_ids = '{}' where id = ${id}`);
  else await tx.query(sql`delete from lost_shards where id = ${id}`);
  await tx.query(sql`
    delete from missed_block
    where number <= coalesce((select min(block_number) from lost_shards), (select max(number) from missed_block))`);
  return further.length > 0;
}

/** Each worker's lost shards, with the blocks that they miss and those blocks' transfers. For the operator. */
export async function countMissed(db: Db): Promise<(LostShards & { blocks: number; transfers: number })[]> {
  if (db.isDistributed !== true) return [];
  const counts = await db.query<{ id: number; blocks: number; transfers: number }>(sql`
    select s.id, count(m.number) as blocks,
      coalesce(sum(jsonb_array_length(m.transfers)), 0)::bigint as transfers
    from lost_shards s left join missed_block m on m.number > s.block_number
    group by s.id order by s.id`);
  const lost = await listLost(db);
  return lost.flatMap((one) =>
    counts.filter(({ id }) => id === one.id).map((count) => ({ ...one, ...count })),
  );
}
