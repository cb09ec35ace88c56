/**
 * Anyone can make a list of points long, by events on the chain. Lists that are too large for the process are refused.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import fastify from 'fastify';
import type { Api } from '../../../src/api/context.ts';
import { answerError } from '../../../src/api/http/errors.ts';
import { cacheResponses } from '../../../src/api/http/public.ts';
import { addPointRoutes } from '../../../src/api/public/points.ts';
import { silentLog } from '../../../src/core/log.ts';
import { createMetrics } from '../../../src/core/metrics.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { insertAwards } from '../../../src/store/points/awards.ts';
import { awardOf } from '../../kit/awards.ts';
import { alice, bob, hashOf } from '../../kit/chain-story.ts';
import { createTestClock } from '../../kit/clock.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';

const CACHE_MS = 300_000;

/** An API whose lists may have 20,000 bytes. `read` counts the pieces of each list that was read from the database. */
function createStory(database: Database) {
  const [clock, log, metrics] = [createTestClock(), silentLog(), createMetrics('1.2.3')];
  const read: number[] = [];
  const counting: Database = {
    ...database,
    each: (statement, onRow) => {
      const index = read.push(0) - 1;
      return database.each<Parameters<typeof onRow>[0]>(statement, (row) => {
        read[index] = (read[index] ?? 0) + 1;
        onRow(row);
      });
    },
  };
  const api: Api = fastify().withTypeProvider<TypeBoxTypeProvider>();
  api.setErrorHandler((error, request, reply) => answerError(error, request, reply, log));
  cacheResponses(api, { clock, log, metrics });
  addPointRoutes(api, { database: counting, clock, largeBytesMax: 20_000 });
  const ask = async (path: string) => {
    const { statusCode, headers, body } = await api.inject({ url: `/api/points/${path}` });
    return { status: statusCode, headers, body };
  };
  return { api, clock, read, ask };
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a list that is too large is refused with advice, and is not read again for its cache time', async (context) => {
    await database().transaction((tx) =>
      insertAwards(tx, [
        ...Array.from({ length: 3_500 }, (_, index) => awardOf({ user: alice, txHash: hashOf(index) })),
        awardOf({ user: bob, txHash: hashOf(0), ordinal: 7 }),
      ]),
    );
    const { api, clock, read, ask } = createStory(database());
    context.after(() => api.close());
    const long = `user?month=2026-01&user=${alice}`;
    for (let round = 0; round < 2; round += 1) {
      const { status, headers, body } = await ask(long);
      assert.equal(status, 503);
      assert.equal(headers['cache-control'], undefined);
      assert.deepEqual(JSON.parse(body), {
        statusCode: 503,
        statusMessage: 'Service Unavailable: this list is too large. Use limit to read it in pages',
      });
    }
    assert.deepEqual(read, [1], 'the database ends with the piece that is too much');
    assert.equal((await ask(`${long}&limit=100`)).status, 200);
    for (const short of ['leaderboard?month=2026-01', `user?month=2026-01&user=${bob}`])
      assert.equal((await ask(short)).status, 200);
    clock.advance(CACHE_MS);
    await ask(long);
    assert.deepEqual(read, [1, 1, 1, 1]);
  });
});
