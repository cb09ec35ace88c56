import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { releaseLanes } from '../../../src/store/delivery/lanes.ts';
import { repairSchedule } from '../../../src/store/deployment/clock-steps.ts';
import { leaseDue } from '../../kit/attempts.ts';
import { headerOf, later, listLanes, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { createTestClock } from '../../kit/clock.ts';
import { onPostgres } from '../../kit/each-database.ts';
import { countWaiting } from '../../kit/in-line.ts';
import { waitUntil } from '../../kit/wait.ts';

onPostgres(({ database }) => {
  test('a queue that is given back while the schedule is repaired is due when its notifications are', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    const lanes = await leaseDue(database(), { owner: 1, now: noon });
    // A process that missed a step of the clock wrote this time.
    await database().query(sql`update notification_status set next_attempt_at = ${later(86_400_000)}`);
    const timing = { clock: createTestClock(), leaseMs: 30_000, retryMinutes: [1] };
    let isRepaired = false;
    let repairing: Promise<unknown> = Promise.resolve();
    const pausing: Database = {
      ...database(),
      transaction: (work) =>
        database().transaction(async (tx) => {
          const result = await work(tx);
          repairing = repairSchedule(database(), timing).then(() => {
            isRepaired = true;
          });
          await waitUntil(async () => isRepaired || (await countWaiting(database())) > 0, {
            describe: 'the repair has ended, or waits for the queue',
          });
          return result;
        }),
    };
    await releaseLanes(pausing, lanes, noon);
    await repairing;
    assert.deepEqual(
      (await listLanes(database())).map(({ owner, next_due }) => [owner, next_due]),
      [[null, noon]],
    );
  });
});
