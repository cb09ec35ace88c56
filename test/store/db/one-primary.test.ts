import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openDatabase } from '../../../src/store/db/open.ts';
import { startPostgresPair } from '../../kit/postgres-pair.ts';

test('a start refuses several servers that accept writes, but not several addresses of one', async () => {
  await using pair = await startPostgresPair();
  const { username, password } = new URL(pair.primary.url);
  const [primary, standby] = [pair.primary, pair.standby].map(({ port }) => `127.0.0.1:${port}`);
  async function start(...hosts: (string | undefined)[]): Promise<void> {
    const url = `postgres://${username}:${password}@${hosts.join()}/postgres`;
    const database = await openDatabase({ url, dataDir: '' });
    try {
      await database.requireSessions();
    } finally {
      await database.close();
    }
  }
  await start(primary, standby);
  await start(primary, primary);
  // The first one doesn't answer.
  await start('127.0.0.1:1', primary);
  await pair.promote();
  await assert.rejects(start(standby, primary), {
    // So a start retries.
    code: 'unavailable',
    message: `database.url: several servers accept writes: ${standby}, ${primary}. One of them is probably a former primary that started again after a fail-over. Stop it, and rebuild it as a standby (docs/how-to/run-in-production.md, Fail-over)`,
  });
  await start(standby);
});
