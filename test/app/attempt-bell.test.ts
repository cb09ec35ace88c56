import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ASK_MS, createAttemptBell } from '../../src/app/attempt-bell.ts';
import { createSessionKeeper } from '../../src/store/db/session-keeper.ts';
import { ATTEMPT_CHANNEL } from '../../src/store/delivery/attempt-events.ts';
import { createTestClock } from '../kit/clock.ts';
import { onPostgres } from '../kit/each-database.ts';
import { waitUntil } from '../kit/wait.ts';

onPostgres(({ database }) => {
  /** A process with a bell. `sent` has the payloads of its notices. */
  function startProcess() {
    const closing = new AbortController();
    const clock = createTestClock();
    const sent: unknown[] = [];
    const watched = {
      ...database(),
      query: <Row>(statement: Parameters<ReturnType<typeof database>['query']>[0]) => {
        sent.push(statement.values[1]);
        return database().query<Row>(statement);
      },
    };
    const bell = createAttemptBell({
      ...{ database: watched, clock, signal: closing.signal },
      session: () => sessions.current(),
    });
    const sessions = createSessionKeeper(database(), { [ATTEMPT_CHANNEL]: bell.hear });
    return {
      ...{ bell, clock, sent, sessions },
      async [Symbol.asyncDispose]() {
        closing.abort();
        await sessions.close();
      },
    };
  }

  test('a stream is woken by attempts that its own process settles, without a notice to others', async () => {
    await using process = startProcess();
    const { bell, sent } = process;
    const woken: string[] = [];
    const leave = bell.listen(1, () => woken.push('one'));
    bell.listen(undefined, () => woken.push('all'));
    bell.ring([2]);
    bell.ring([1, 2]);
    assert.deepEqual(woken, ['all', 'one', 'all']);
    leave();
    bell.ring([1]);
    assert.deepEqual(woken, ['all', 'one', 'all', 'all']);
    assert.deepEqual(sent, []);
  });

  test('a stream is woken by attempts of another process, which sends notices only while streams ask for them', async () => {
    await using sending = startProcess();
    await using reading = startProcess();
    await sending.sessions.current();
    let wokenCount = 0;
    await reading.bell.ask(new AbortController().signal);
    assert.deepEqual(reading.sent, [], 'no stream, no question');
    reading.bell.listen(7, () => {
      wokenCount += 1;
    });
    sending.bell.ring([7]);
    assert.deepEqual(sending.sent, []);
    await reading.bell.ask(new AbortController().signal);
    await waitUntil(() => {
      sending.bell.ring([7]);
      sending.clock.advance(25);
      return wokenCount > 0;
    });
    // The question holds for three times as long as the next one takes.
    sending.clock.advance(3 * ASK_MS);
    const { length } = sending.sent;
    sending.bell.ring([7]);
    assert.equal(sending.sent.length, length);
  });
});
