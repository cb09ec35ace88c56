import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { issueKey } from '../../src/app/issue-keys.ts';
import { createCorrections } from '../../src/delivery/corrections.ts';
import { createDueReader, type DueReader } from '../../src/delivery/reader.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import type { Astray } from '../../src/store/delivery/astray.ts';
import { leaseDue } from '../kit/attempts.ts';
import { headerOf, mine, noon, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';

const MANY = 1_000;

const keyRing = deriveKeyRing(Buffer.alloc(32, 7));

/** A reader on this database, and the arguments of each of its statements. */
function watchedReader(database: Database): { reader: DueReader; statements: string[] } {
  const statements: string[] = [];
  const query: Database['query'] = (statement) => {
    statements.push(JSON.stringify(statement.values));
    return database.query(statement);
  };
  const reader = createDueReader({ database: { ...database, query }, clock: createTestClock(), keyRing });
  return { reader, statements };
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a watcher with a thousand lanes to read does not delay the only lane of another one', async () => {
    const { reader, statements } = watchedReader(database());
    const read = (id: number, watcherId: number) => {
      const lane = { id, watcherId, shardId: watcherId, origin: `https://host${id}.example`, epoch: 1 };
      return reader.read({ lane, exclude: [], limit: 2 });
    };
    const many = Array.from({ length: MANY }, (_, index) => read(index + 1, 1));
    // The lanes do not exist, so the reader treats them as lost leases.
    assert.deepEqual(new Set(await Promise.all([...many, read(MANY + 1, 2)])), new Set(['lost']));
    assert.ok(statements.length > 2);
    assert.match(statements[0] ?? '', new RegExp(`\\b${MANY + 1}\\b`));
  });

  test("many watchers are read with a few statements, and a watcher whose credentials can't be read fails alone", async () => {
    const watchers: { watcherId: number; key: string }[] = [];
    for (let index = 0; index < 20; index += 1) {
      const { watcherId, key } = await issueKey({ database: database(), keyRing }, `watcher ${index}`, noon);
      await watchAddress(database(), { watcherId, url: `https://host${index}.example/` });
      watchers.push({ watcherId, key });
    }
    await mine(database(), headerOf(1), [transferOf()]);
    const lanes = await leaseDue(database(), { now: noon });
    assert.equal(lanes.length, 20);
    // The first read creates their signing secrets.
    const read = (reader: DueReader) =>
      Promise.allSettled(lanes.map((lane) => reader.read({ lane, exclude: [], limit: 2 })));
    await read(watchedReader(database()).reader);
    const damaged = lanes[7]?.watcherId ?? 0;
    await database().query(sql`update api_key set ciphertext = '\\x00' where watcher_id = ${damaged}`);

    const { reader, statements } = watchedReader(database());
    for (const [index, outcome] of (await read(reader)).entries()) {
      const lane = lanes[index];
      if (lane?.watcherId === damaged) {
        assert.equal(outcome.status, 'rejected');
        continue;
      }
      assert.ok(outcome.status === 'fulfilled' && typeof outcome.value === 'object');
      const own = watchers.find(({ watcherId }) => watcherId === lane?.watcherId);
      assert.deepEqual(
        outcome.value.due.map(({ credentials }) => [credentials.apiKey, credentials.signingKeys.length]),
        [[own?.key, 1]],
      );
    }
    assert.equal(statements.length, 3);
  });

  test("corrections of a watcher's notifications delay no lane of another watcher", async () => {
    for (const watcherId of [1, 2]) await watchAddress(database(), { watcherId });
    const gone = await watchAddress(database(), { watcherId: 1, url: 'https://other.example/hook' });
    await mine(database(), headerOf(1), [transferOf()]);
    const lanes = await leaseDue(database(), { now: noon });
    await database().query(sql`delete from watched_address where id = ${gone.id}`);
    const isAsked = Promise.withResolvers<void>();
    const mayGoOn = Promise.withResolvers<void>();
    const slow: Database = {
      ...database(),
      async transaction(work) {
        isAsked.resolve();
        await mayGoOn.promise;
        return database().transaction(work);
      },
    };
    const clock = createTestClock();
    const reader = createDueReader({ database: slow, clock, keyRing });
    const idsOf = async (lane: (typeof lanes)[number]) => {
      const found = await reader.read({ lane, exclude: [], limit: 2 });
      return typeof found === 'string' ? found : found.due.length;
    };
    const own = lanes.filter(({ watcherId }) => watcherId === 1).map(idsOf);
    const others = lanes.filter(({ watcherId }) => watcherId === 2).map(idsOf);
    assert.deepEqual(await Promise.all(others), [1]);
    await isAsked.promise;
    mayGoOn.resolve();
    assert.deepEqual((await Promise.all(own)).map(String).toSorted(), ['0', '1']);
    const [cancelled] = await database().query<{ state: string }>(sql`
      select state from notification_status where watched_address_id = ${gone.id}`);
    assert.equal(cancelled?.state, 'cancelled');
  });

  test('watchers take turns with their corrections', async () => {
    const order: number[] = [];
    const first = Promise.withResolvers<void>();
    const correct = createCorrections({
      database: {
        ...database(),
        async query(statement) {
          await first.promise;
          order.push(Number(statement.values[0]));
          return [];
        },
        transaction: async () => undefined as never,
      },
      clock: createTestClock(),
    });
    const astrayOf = (watcherId: number, id: number): Astray => ({
      lane: { id, watcherId, shardId: id, origin: 'https://one.example', epoch: 1 },
      misplaced: [{ id: 1, recordId: randomUUID() }],
      unwanted: [],
    });
    const all = [astrayOf(1, 11), astrayOf(1, 12), astrayOf(1, 13), astrayOf(2, 21)].map(correct);
    first.resolve();
    await Promise.all(all);
    // The second one was waiting when the other watcher came.
    assert.deepEqual(order, [11, 12, 21, 13]);
  });
});
