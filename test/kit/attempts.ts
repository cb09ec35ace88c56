/**
 * A worker without receivers: what is due is tried once, with an outcome that the test chooses.
 */
import assert from 'node:assert/strict';
import type { Database } from '../../src/store/db.ts';
import { type Lane, leaseLanes, releaseLane } from '../../src/store/lanes.ts';
import { type DueNotification, listDue, settle } from '../../src/store/outbox.ts';

/** What is due in a lane that is held. */
export async function readDue(
  database: Database,
  lane: Lane,
  now: Date,
  limit = 100,
): Promise<DueNotification[]> {
  const due = await listDue(database, lane, { now, exclude: [], limit });
  assert.ok(due !== 'lost');
  return due;
}

/**
 * Leases every lane, tries everything that is due there, gives the lanes back. A failure is due again 60 s later; one
 * that does not arrive never reached the receiver.
 */
export async function attemptDue(
  database: Database,
  { now, succeeds, arrives = true }: { now: Date; succeeds: boolean; arrives?: boolean },
): Promise<DueNotification[]> {
  const attempted: DueNotification[] = [];
  const leaseUntil = new Date(now.getTime() + 30_000);
  for (const lane of await leaseLanes(database, { owner: 1, now, leaseUntil, limit: 100 })) {
    const due = await readDue(database, lane, now);
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
    await releaseLane(database, lane, now);
    attempted.push(...due);
  }
  return attempted;
}
