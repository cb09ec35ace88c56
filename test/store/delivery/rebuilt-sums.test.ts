/**
 * Sums that are being built again don't pass for complete ones.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sql } from '../../../src/store/db/sql.ts';
import { createDeliveryCount } from '../../../src/store/delivery/count-deliveries.ts';
import { readStatistics } from '../../../src/store/delivery/statistics.ts';
import { attemptDue } from '../../kit/attempts.ts';
import { headerOf, later, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { createTestClock } from '../../kit/clock.ts';
import { onEachDatabase } from '../../kit/each-database.ts';

onEachDatabase(({ database }) => {
  test('while the sums are built again, no time is given up to which they are complete', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf()]);
    await attemptDue(database(), { now: noon, succeeds: false });
    await attemptDue(database(), { now: later(60_000), succeeds: true });
    const count = createDeliveryCount({
      ...{ database: database(), clock: createTestClock(later(90_000)), attemptsMs: 86_400_000, batchIds: 1 },
    });
    const read = async () => {
      const { totals, countedUntil } = await readStatistics(
        database(),
        { watcherId: 1 },
        { period: '24h', now: later(90_000) },
      );
      return [totals.attempts, countedUntil !== undefined];
    };
    const countBoth = async () => {
      const seen = [];
      for (let step = 0; step < 2; step += 1) {
        await count.step();
        seen.push(await read());
      }
      return seen;
    };
    const steps = [
      [1, false],
      [2, true],
    ];
    assert.deepEqual(await countBoth(), steps);
    await database().query(sql`update statistics_state set counted_id = null`);
    assert.deepEqual(await read(), [2, false]);
    assert.deepEqual(await countBoth(), steps);
  });
});
