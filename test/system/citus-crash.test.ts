/**
 * Servers of a Citus cluster that crash while blocks are committed and webhooks are sent. The oracle is the list of payments. Runs with
 * `npm run citus`, on servers of its own, so Citus must be installed on this machine.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { citusUrl } from '../kit/citus.ts';
import { startCitusServers } from '../kit/citus-servers.ts';
import { setStage } from '../kit/citus-stage.ts';
import { waitUntil } from '../kit/wait.ts';

const skip =
  citusUrl() === undefined && 'TEST_CITUS_URL is not set: run `npm run citus -- system/citus-crash`';
/** The coordinator and two workers. */
const SERVERS = [0, 1, 2];

test('a backend of each server is killed, and then each server: each payment is accepted once', {
  skip,
}, async () => {
  await using parts = new AsyncDisposableStack();
  const servers = parts.use(await startCitusServers());
  const stage = await setStage(parts, { coordinator: servers.url, workers: 2, isApart: false });
  const { chain, cluster, watchers, pay, told, status } = stage;
  const database = new URL(cluster.url).pathname.slice(1);
  const payAll = async () => {
    for (const watcher of watchers) await pay(watcher);
  };
  const areAllTold = () => watchers.every(({ paid }) => paid.every((hash) => (told().get(hash) ?? 0) > 0));
  const crashes = [
    ...SERVERS.map((server) => () => servers.killBackend(server, database)),
    ...SERVERS.map((server) => () => servers.kill(server)),
  ];
  for (const crash of crashes) {
    await payAll();
    await crash();
    await payAll();
    await waitUntil(areAllTold, { describe: 'the payments around a crash', timeoutMs: 180_000 });
  }
  await stage.isAllTold();
  await waitUntil(async () => (await status()).state === 'ok', { describe: 'the state ok' });
  assert.equal((await status()).cursor?.number, (await chain.head()).number);
});
