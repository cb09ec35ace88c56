import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { silentLog } from '../../src/core/log.ts';
import { createSettler } from '../../src/delivery/settler.ts';
import { leaseDue, readDue } from '../kit/attempts.ts';
import { headerOf, listStates, mine, noon, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onEachDatabase } from '../kit/each-database.ts';

onEachDatabase(({ database }) => {
  test('outcomes that come in one turn of the event loop after another are recorded by one statement', async () => {
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf(), transferOf()]);
    const [lane] = await leaseDue(database(), { now: noon });
    assert.ok(lane !== undefined);
    const outcomes = (await readDue(database(), lane, noon)).map(
      ({ id, revision, retryCount, redeliveryCount }) => ({
        ...{ lane, notificationId: id, revision, retryCount, redeliveryCount },
        ...{ startedAt: noon, mayHaveArrived: true, durationMs: 1, settledAt: noon },
        ...{ outcome: 'success', status: 200, response: undefined, nextRetryAt: undefined },
      }),
    );
    let statements = 0;
    const settler = createSettler({
      database: {
        ...database(),
        query(statement) {
          statements += 1;
          return database().query(statement);
        },
      },
      clock: createTestClock(),
      log: silentLog(),
      signal: new AbortController().signal,
    });
    const [first, second] = outcomes;
    assert.ok(first !== undefined && second !== undefined);
    const next = setImmediate().then(() => settler.submit(second));
    assert.deepEqual(await Promise.all([settler.submit(first), next]), ['settled', 'settled']);
    assert.equal(statements, 1);
    assert.deepEqual(await listStates(database()), ['processed', 'processed']);
  });
});
