/**
 * Lanes that were forgotten: something in them is due and no worker would ever look. Every transaction that makes something due
 * wakes its lane, so this finds nothing unless one of them has a bug, or rows were changed by hand.
 */
import type { Clock } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import type { Step } from '../../core/loop.ts';
import type { Metrics } from '../../core/metrics.ts';
import type { Database, Db } from '../db/db.ts';
import { unlessLocked } from '../db/skip-locked.ts';
import { type Sql, sql } from '../db/sql.ts';
import { isOfThisTime, wakeLanes } from './lanes.ts';

/** Two index probes each: a page takes milliseconds, and a million lanes half an hour of pauses. */
const PAGE_LANES = 1_000;

/** A page of the lanes, by id. */
export type LanePage = { after: number; limit: number };

/** The step that looks at one page of lanes, from the first again after the last, and wakes those that were forgotten. */
export function createLaneRepair({
  database,
  clock,
  log,
  metrics,
}: {
  database: Database;
  clock: Clock;
  log: Log;
  metrics: Pick<Metrics, 'webhookLanesHealed'>;
}): Step {
  let after = 0;
  return async () => {
    const page = { after, limit: PAGE_LANES };
    const look = () => findForgottenLanes(database, { now: clock.now(), stepsMs: clock.stepsMs(), page });
    const { laneIds: found, last } = await look();
    after = last ?? 0;
    if (found.length === 0) return 'idle';
    // The time of one look may have passed before the database answered: the process was stopped, or other clocks are ahead.
    const again = new Set((await look()).laneIds);
    const laneIds = found.filter((id) => again.has(id));
    if (laneIds.length === 0) return 'idle';
    // Those that are locked would keep the others locked too; the next round finds them again.
    const isDone = await unlessLocked(database, async (tx) => {
      await wakeLanes(tx, laneIds, clock.now());
      return true;
    });
    if (isDone === undefined) return 'idle';
    metrics.webhookLanesHealed.inc(laneIds.length);
    const meaning =
      'webhooks were due that no worker would have sent; please report this with the log before it';
    log.warn({ lanes: laneIds, meaning }, 'delivery.healed');
    return 'idle';
  };
}

/** Clocks of workers differ by less. */
const CLOCK_DIFFERENCE = sql`interval '1 second'`;

/**
 * Of a page of lanes without an owner those that are not due although something in them is, or whose watcher has no
 * visit due although they are due. `last` is undefined after the last page. None while the process has not followed all `stepsMs` of the clock.
 */
export async function findForgottenLanes(
  db: Db,
  { now, stepsMs, page }: { now: Date; stepsMs: number; page: LanePage },
): Promise<{ laneIds: number[]; last: number | undefined }> {
  const isDue = (attempts: Sql) => sql`exists (
    select from notification n
    where n.shard_id = l.shard_id and n.lane_id = l.id and n.state = 'waiting' and ${attempts}
      and n.next_attempt_at <= ${now})`;
  const rows = await db.query<{ id: number; is_forgotten: boolean }>(sql`
    select id, owner is null and ${isOfThisTime(stepsMs)} and case when next_due <= ${now}::timestamptz - ${CLOCK_DIFFERENCE}
      then not exists (
        select from watcher_queue q
        where q.watcher_id = l.watcher_id and q.next_due <= ${now}::timestamptz + ${CLOCK_DIFFERENCE})
      else (next_due is null or next_due > ${now})
        and (${isDue(sql`n.retry_count = 0`)} or ${isDue(sql`n.retry_count > 0`)}) end as is_forgotten
    from lane l
    where id > ${page.after}
    order by id
    limit ${page.limit}`);
  return {
    laneIds: rows.filter((row) => row.is_forgotten).map(({ id }) => id),
    last: rows.length < page.limit ? undefined : rows.at(-1)?.id,
  };
}
