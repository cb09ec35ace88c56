/**
 * What a replica's state says of its lag, with scripted servers.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { createReplica, PROBE_MS, type ReplicaConnections } from '../../../src/store/db/replica.ts';
import { createTestClock } from '../../kit/clock.ts';

/** A primary with a heartbeat every two probes, and a replica that shows it unless it fails or replays nothing. */
function startStory() {
  const clock = createTestClock();
  const story = { beat: 1, shown: 1, error: undefined as Error | undefined };
  const rowsOf = async (row: unknown) => [row] as never[];
  const primary = { query: () => rowsOf({ beat: story.beat, timeline: '00000001' }) } as unknown as Database;
  const connections = {
    async query() {
      if (story.error !== undefined) throw story.error;
      return rowsOf({ beat: story.shown, isStandby: true });
    },
    cut() {},
  } as unknown as ReplicaConnections;
  const replica = createReplica({
    ...{ primary, replica: connections, processId: () => 'one', lagMsMax: 5_000, clock, onRead() {} },
  });
  return Object.assign(story, {
    state: replica.state,
    async pass(probes: number, { isReplaying = true } = {}) {
      for (let index = 0; index < probes; index += 1) {
        if (index % 2 === 0) story.beat += 1;
        if (isReplaying) story.shown = story.beat;
        await replica.probe();
        clock.advance(PROBE_MS);
      }
    },
  });
}

test('the lag of a replica that does not answer is unknown, and its problem names the setting of its URL', async () => {
  const story = startStory();
  await story.pass(4);
  assert.deepEqual(story.state(), { isUsed: true, lagMs: 0, problem: undefined });
  story.error = new Fault(
    'unavailable',
    'database: no connection (refused). Check that the server runs and that database.url (DATABASE_URL) names it',
  );
  await story.pass(40);
  const { isUsed, lagMs, problem } = story.state();
  assert.deepEqual([isUsed, lagMs], [false, undefined]);
  assert.match(problem ?? '', /that database\.replicaUrl \(CHAINBELL_DATABASE_REPLICA_URL\) names it$/);
  story.error = undefined;
  await story.pass(4);
  assert.deepEqual(story.state(), { isUsed: true, lagMs: 0, problem: undefined });
});

test('the lag of a replica that answers and replays nothing grows for hours', async () => {
  const story = startStory();
  await story.pass(4);
  const probes = 20_000;
  await story.pass(probes, { isReplaying: false });
  const { isUsed, lagMs } = story.state();
  assert.deepEqual([isUsed, lagMs], [false, probes * PROBE_MS]);
  await story.pass(2);
  assert.equal(story.state().lagMs, 0);
});
