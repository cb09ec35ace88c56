/**
 * Finds and wakes forgotten lanes: something in them is due, but no worker would visit them. Every transaction that makes
 * something due wakes its lane, so this finds nothing unless there is a bug or rows were changed by hand.
 */
import type { Clock } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import type { Step } from '../../core/loop.ts';
import type { Metrics } from '../../core/metrics.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Db } from '../db/db.ts';
import { tryEachShard } from '../db/each-shard.ts';
import { isLost } from '../db/lost-shards.ts';
import { type Sql, sql } from '../db/sql.ts';
import { unlessLocked } from '../db/unless-locked.ts';
import { hasFollowedClock, wakeLanes } from './lanes.ts';
import { selectNextDue } from './lanes-in-shards.ts';
import { LOST_VISIT_MS } from './visit-schedule.ts';

/** Each lane takes two index probes. A page takes milliseconds; a million lanes take half an hour including the pauses. */
const PAGE_LANES = 1_000;
/** On Citus, each shard of a page takes a statement. A million lanes take three hours. */
const PAGE_LANES_IN_SHARDS = 200;

/** A page of lanes by id. */
export type LanePage = { after: number; limit: number };

/** A step that checks one page of lanes and wakes the forgotten ones. After the last page it starts over. */
export function createLaneRepair({
  database,
  clock,
  log,
  metrics,
}: {
  database: Database;
  clock: Clock;
  log: Log;
  metrics: Pick<Metrics, 'deliveryQueuesHealed'>;
}): Step {
  let after = 0;
  return async () => {
    const page = { after, limit: database.isDistributed === true ? PAGE_LANES_IN_SHARDS : PAGE_LANES };
    const look = () => findForgottenLanes(database, { now: clock.now(), stepsMs: clock.stepsMs(), page });
    const { laneIds: found, last } = await look();
    after = last ?? 0;
    if (found.length === 0) return 'idle';
    // `now` may have been outdated when the query ran, because this process was stopped or other clocks are ahead. Check
    // again.
    const again = new Set((await look()).laneIds);
    const laneIds = found.filter((id) => again.has(id));
    if (laneIds.length === 0) return 'idle';
    // Waiting for one locked lane would keep the others locked too. The next round finds them again.
    const isDone = await unlessLocked(database, async (tx) => {
      await wakeLanes(tx, laneIds, clock.now());
      return true;
    });
    if (isDone === undefined) return 'idle';
    metrics.deliveryQueuesHealed.inc(laneIds.length);
    const meaning =
      'webhooks were due that no worker would have sent; please report this with the log before it';
    log.warn({ lanes: laneIds, meaning }, 'delivery.queue_healed');
    return 'idle';
  };
}

/** The clocks of workers differ by less than this. */
const CLOCK_DIFFERENCE_MS = 1_000;

/**
 * The forgotten lanes of a page: they have no owner, and either something in them is due but the lane is not, or the lane is
 * due but no visit of its watcher is. `last` is undefined after the last page. Finds none while this process has not followed
 * all steps of the clock.
 */
export async function findForgottenLanes(
  db: Db,
  { now, stepsMs, page }: { now: Date; stepsMs: number; page: LanePage },
): Promise<{ laneIds: number[]; last: number | undefined }> {
  const has = (attempts: Sql) => sql`exists (
    select from queue n
    where n.shard_id = l.shard_id and n.lane_id = l.id and n.state = 'waiting' and ${attempts}
      and n.due_at <= ${now})`;
  const isDue =
    db.isDistributed === true
      ? await dueLanes(db, now, page)
      : sql`(${has(sql`n.retry_count = 0`)} or ${has(sql`n.retry_count > 0`)})`;
  // The shard of a due lane may have been lost when its watcher was visited last.
  const visitUntil = new Date(
    now.getTime() + CLOCK_DIFFERENCE_MS + (db.isDistributed === true ? LOST_VISIT_MS : 0),
  );
  const rows = await db.query<{ id: number; is_forgotten: boolean }>(sql`
    select id, owner is null and ${hasFollowedClock(stepsMs)} and case when next_due <= ${new Date(now.getTime() - CLOCK_DIFFERENCE_MS)}
      then not exists (
        select from watcher_queue q
        where q.watcher_id = l.watcher_id and q.next_due <= ${visitUntil})
      else (next_due is null or next_due > ${now})
        and ${isDue} end as is_forgotten
    from lane l
    where id > ${page.after}
    order by id
    limit ${page.limit}`);
  return {
    laneIds: rows.filter((row) => row.is_forgotten).map(({ id }) => id),
    last: rows.length < page.limit ? undefined : rows.at(-1)?.id,
  };
}

/**
 * On Citus: whether lane `l` of the page is one with something due. Asks each shard separately, because no statement about several shards
 * takes a few rows of each lane. Lanes of shards that don't answer wait for the next round.
 */
async function dueLanes(db: Db, now: Date, page: LanePage): Promise<Sql> {
  const lanes = await db.query<{ id: number; shard_id: number }>(sql`
    select id, shard_id from (select * from lane where id > ${page.after} order by id limit ${page.limit}) as l
    where owner is null and (next_due is null or next_due > ${now}) and not ${isLost(sql`l.shard_id`)}
    order by id`);
  const elements = lanes.map(({ id, shard_id: shardId }) => ({ id, shardId }));
  const { found } = await tryEachShard(db, elements, (shardId, own) =>
    db.query<{ id: number }>(sql`
      select id from (${selectNextDue(shardId, own)}) as earliest where due_at <= ${now} order by id`),
  );
  return sql`id = any(${listOf(found.map(({ id }) => id))}::bigint[])`;
}
