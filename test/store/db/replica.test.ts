/**
 * What a replica's state says of its lag, with scripted servers, and how it is probed, with a real one.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { systemClock } from '../../../src/core/clock.ts';
import { Fault } from '../../../src/core/fault.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { openReplicaConnections } from '../../../src/store/db/postgres.ts';
import { createReplica, PROBE_MS, type ReplicaConnections } from '../../../src/store/db/replica.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createTestClock } from '../../kit/clock.ts';
import { onPostgres } from '../../kit/each-database.ts';
import { waitUntil } from '../../kit/wait.ts';

/** A primary with a heartbeat every two probes, and a replica that shows it unless it fails or replays nothing. */
function startStory() {
  const clock = createTestClock();
  const story = {
    beat: 1,
    shown: 1,
    timeline: '00000001',
    error: undefined as Error | undefined,
    cuts: 0,
    asks: 0,
    gate: Promise.resolve(),
  };
  const rowsOf = async (row: unknown) => [row] as never[];
  const primary = {
    async query() {
      story.asks += 1;
      await story.gate;
      return rowsOf({ beat: story.beat, timeline: story.timeline });
    },
  } as unknown as Database;
  const connections = {
    async probe() {
      if (story.error !== undefined) throw story.error;
      return rowsOf({ beat: story.shown, isStandby: true });
    },
    cut() {
      story.cuts += 1;
    },
  } as unknown as ReplicaConnections;
  const replica = createReplica({
    ...{ primary, replica: connections, processId: () => 'one', lagMsMax: 5_000, clock, onRead() {} },
  });
  return Object.assign(story, {
    clock,
    state: replica.state,
    probe: replica.probe,
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
  const { isUsed, lagMs, problem } = story.state();
  assert.deepEqual([isUsed, lagMs], [false, probes * PROBE_MS]);
  assert.match(problem ?? '', /^is 20000 s behind, and database\.replicaLagMaxSeconds allows \d+ s$/);
  await story.pass(2);
  assert.equal(story.state().lagMs, 0);
});

test('a primary that answers late does not cut the replica, which is used for a while', async () => {
  const story = startStory();
  await story.pass(4);
  const gate = Promise.withResolvers<void>();
  story.gate = gate.promise;
  const { asks } = story;
  const probed = story.probe();
  await waitUntil(() => story.asks > asks);
  story.clock.advance(2_000);
  await probed;
  assert.deepEqual([story.cuts, story.state().isUsed], [0, true]);
  story.clock.advance(5_000);
  assert.equal(
    story.state().problem,
    'could not be compared with the primary, which did not answer, so its lag is unknown',
  );
  gate.resolve();
  await story.pass(2);
  assert.deepEqual(story.state(), { isUsed: true, lagMs: 0, problem: undefined });
});

/** Promotes a server that lacks the last two heartbeats. */
async function startFailover() {
  const story = startStory();
  await story.pass(8);
  Object.assign(story, { timeline: '00000002', beat: story.beat - 2 });
  return story;
}

/** Each pair is a heartbeat on the primary and the one that the replica shows. */
async function passUnused(
  story: ReturnType<typeof startStory>,
  pairs: readonly [beat: number, shown: number][],
) {
  for (const [beat, shown] of pairs) {
    Object.assign(story, { beat, shown });
    await story.probe();
    assert.equal(story.state().isUsed, false, `${shown}, with ${beat} on the primary`);
  }
}

test('a replica that has more than a promoted server is not used until it shows what that one has written since', async () => {
  const story = await startFailover();
  for (let probes = 0; probes < 10; probes += 1) {
    await story.pass(1, { isReplaying: false });
    const { isUsed, problem } = story.state();
    assert.deepEqual([isUsed, problem?.slice(0, 26)], [false, 'has shown no new heartbeat']);
  }
  await story.pass(2);
  assert.deepEqual(story.state(), { isUsed: true, lagMs: 0, problem: undefined });
});

test('a replica that replays late what a promoted server lacks is not used', async () => {
  const story = await startFailover();
  const newest = story.shown;
  // The former primary wrote one more, which neither this process nor the replica has shown, and the new one the one after it.
  await passUnused(story, [
    [newest - 2, newest - 1],
    [newest + 2, newest - 1],
    [newest + 2, newest + 1],
    [newest + 3, newest + 1],
  ]);
  story.shown = newest + 3;
  await story.probe();
  assert.equal(story.state().isUsed, true);
});

test('a replica that still replays what a promoted server lacks is not used', async () => {
  const story = await startFailover();
  const newest = story.shown;
  story.shown = story.beat - 1;
  await story.probe();
  // The former primary wrote one more, which this process never read.
  await passUnused(story, [
    [newest - 1, newest],
    [newest, newest + 1],
    [newest + 1, newest + 1],
    [newest + 2, newest + 1],
  ]);
  story.shown = newest + 2;
  await story.probe();
  assert.equal(story.state().isUsed, true);
});

onPostgres(({ place }) => {
  test('reads that hold all connections to a replica neither delay its probe nor are cut by it', async () => {
    const primary = await place().open();
    const connections = openReplicaConnections(place().url, 1);
    const replica = createReplica({
      ...{ primary, replica: connections, processId: () => 'one', lagMsMax: 5_000, clock: systemClock() },
      onRead() {},
    });
    await using parts = new AsyncDisposableStack();
    parts.defer(() => replica.close());
    const reading = await primary.transaction(async (tx) => {
      await tx.query(sql`select pg_advisory_xact_lock(4711)`);
      const read = connections.query(sql`select 'read' as text from pg_advisory_xact_lock(4711)`);
      // If it is cut, it fails when the test awaits it.
      read.catch(() => {});
      const findWaiting = () =>
        primary.query(sql`select from pg_locks where locktype = 'advisory' and objid = 4711 and not granted`);
      await waitUntil(async () => (await findWaiting()).length === 1, { describe: 'the read to wait' });
      await replica.probe();
      assert.match(replica.state().problem ?? '', /^is not a standby/);
      return { read };
    });
    assert.deepEqual(await reading.read, [{ text: 'read' }]);
  });
});
