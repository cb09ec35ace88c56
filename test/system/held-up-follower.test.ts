/**
 * Locks hold up the follower of a deployment of two processes: it says so itself, and isn't taken for lost.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { StatusBody } from '../../src/api/ops/status-body.ts';
import { LOST_MS } from '../../src/app/process-watch.ts';
import { sql } from '../../src/store/db/sql.ts';
import { listProcesses } from '../../src/store/deployment/processes.ts';
import { startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import { countWaiting } from '../kit/in-line.ts';
import { startTestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

test('while locks keep the follower from storing blocks, its heartbeats go on and name the cause, until it goes on', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const database = parts.use(await createTestDatabase('postgres'));
  const operator = await database.open();
  const common = { database, rpc: [chain.url] };
  const follower = parts.use(await startTestService({ ...common, roles: ['follower', 'prices'] }));
  const api = parts.use(await startTestService({ ...common, roles: ['api'] }));
  await chain.mine();
  await follower.inSync(chain);
  const leader = async () =>
    (await listProcesses(operator)).find(({ follower: report }) => report?.leads === true);
  await waitUntil(async () => (await leader()) !== undefined);

  const { problem, status } = await operator.transaction(async (tx) => {
    await tx.query(sql`lock table block, notification, queue in access exclusive mode`);
    await chain.mine();
    const heldUp = await waitUntil(async () => {
      const one = await leader();
      assert.ok(one !== undefined && one.ageMs < LOST_MS, `no heartbeat for ${one?.ageMs} ms`);
      const message = one.follower?.problem?.message;
      return message?.startsWith('the database does not answer the follower, ') && message;
    });
    // A status that takes too long lacks parts. While a step of the follower begins again, its last Fault is shown.
    return waitUntil(async () => {
      const body = (await (await fetch(`${api.apiUrl}/status`)).json()) as StatusBody;
      return body.processes !== null && body.problem?.message === heldUp && { problem: heldUp, status: body };
    });
  });
  assert.match(problem, / a lock on a table/);
  assert.deepEqual([status.state, status.problem?.message, status.queue], ['degraded', problem, null]);
  assert.deepEqual(
    [status.missing, status.processes?.map(({ state }) => state)],
    [[], ['running', 'running']],
  );
  await follower.inSync(chain);
  await waitUntil(async () => (await leader())?.follower?.state === 'ok');
});

test('while a lock keeps blocks from being stored, the status and the metrics show how far they are behind the head', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const database = parts.use(await createTestDatabase('postgres'));
  const operator = await database.open();
  const service = parts.use(await startTestService({ database, rpc: [chain.url] }));
  await chain.mine();
  await service.inSync(chain);
  const stored = (await chain.head()).number;
  const status = async () => (await (await fetch(`${service.apiUrl}/status`)).json()) as StatusBody;

  await operator.transaction(async (tx) => {
    await tx.query(sql`lock table queue in access exclusive mode`);
    await chain.mine();
    // The follower has read this head, and waits with its block.
    await waitUntil(
      async () => (await status()).chain.head === stored + 1 && (await countWaiting(operator)) > 0,
    );
    for (let blocks = 0; blocks < 5; blocks += 1) await chain.mine();
    const { number } = await chain.head();
    await waitUntil(async () => {
      const { chain: shown, cursor, lag_blocks: lag } = await status();
      return shown.head === number && cursor?.number === stored && lag === number - stored;
    });
    await waitUntil(
      async () => (await service.metric('chainbell_chain_block_number\\{stage="head"\\}')) === number,
    );
    await waitUntil(async () => (await service.metric('chainbell_chain_lag_seconds')) > 0);
  });
  await service.inSync(chain);
  await waitUntil(async () => (await status()).lag_blocks === 0);
});
