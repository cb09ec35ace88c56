/**
 * A delivery worker without receivers. It attempts due notifications once, with an outcome that the test chooses.
 */
import assert from 'node:assert/strict';
import { shardOf } from '../../src/domain/shard.ts';
import type { Database, Db } from '../../src/store/db/db.ts';
import { type DueNotification, listDue } from '../../src/store/delivery/due.ts';
import {
  ensureLanes,
  holdWatcher,
  type Lane,
  leaseLanes,
  releaseLanes,
  VISIT_LANES_MAX,
} from '../../src/store/delivery/lanes.ts';
import { settle } from '../../src/store/delivery/settle.ts';
import { scheduleNextVisits } from '../../src/store/delivery/visit-schedule.ts';

/** The watcher's delivery queue in its slice 0 for a webhook origin. Creates it if it does not exist. */
export async function ensureLane(db: Db, watcherId: number, origin: string): Promise<number> {
  const key = { shardId: shardOf(watcherId), origin };
  return (await ensureLanes(db, await holdWatcher(db, watcherId, [origin]), [key]))(key);
}

/** Leases up to `limit` delivery queues for 30 s, visiting watchers in turn, as a worker does. */
export async function leaseDue(
  database: Database,
  { owner = 1, now, limit = 100 }: { owner?: number; now: Date; limit?: number },
): Promise<Lane[]> {
  const leaseUntil = new Date(now.getTime() + 30_000);
  const lanes: Lane[] = [];
  while (lanes.length < limit) {
    const lanesEach = Math.min(VISIT_LANES_MAX, limit - lanes.length);
    const watchersMax = Math.floor((limit - lanes.length) / lanesEach);
    const { leased, drained } = await leaseLanes(database, {
      owner,
      now,
      leaseUntil,
      watchersMax,
      lanesEach,
    });
    await scheduleNextVisits(database, drained, now);
    if (leased.length === 0) break;
    lanes.push(...leased);
  }
  return lanes;
}

/** Lists the due notifications of a leased delivery queue. */
export async function readDue(
  database: Database,
  lane: Lane,
  now: Date,
  limit = 100,
): Promise<DueNotification[]> {
  const due = (await listDue(database, [lane], { now, exclude: [], limit })).get(lane.id);
  assert.ok(Array.isArray(due));
  return due;
}

/**
 * Leases every delivery queue, attempts everything that is due there, and releases the queues. A failed attempt is due again
 * 60 s later. A message that does not arrive never reached the receiver. `meanwhile` happens before the outcome is stored.
 */
export async function attemptDue(
  database: Database,
  {
    now,
    succeeds,
    arrives = true,
    meanwhile,
  }: { now: Date; succeeds: boolean; arrives?: boolean; meanwhile?: () => Promise<unknown> },
): Promise<DueNotification[]> {
  const attempted: DueNotification[] = [];
  for (const lane of await leaseDue(database, { now })) {
    const due = await readDue(database, lane, now);
    await meanwhile?.();
    const common = {
      lane,
      startedAt: now,
      mayHaveArrived: arrives,
      durationMs: 5,
      response: undefined,
      settledAt: now,
    };
    const outcome = succeeds
      ? { outcome: 'success', status: 200, nextRetryAt: undefined }
      : { outcome: 'http_5xx', status: 500, nextRetryAt: new Date(now.getTime() + 60_000) };
    await settle(
      database,
      due.map(({ id, revision, retryCount, redeliveryCount }) => ({
        ...{ ...common, ...outcome },
        ...{ notificationId: id, revision, retryCount, redeliveryCount },
      })),
    );
    await releaseLanes(database, [lane], now);
    attempted.push(...due);
  }
  return attempted;
}
