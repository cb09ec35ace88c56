/**
 * A deployment of three processes, one for each role: what the API process says when the follower is killed or stopped.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Role } from '../../src/app/roles.ts';
import { chainbell } from '../cli/chainbell.ts';
import { startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import type { KnownStatus } from '../kit/known-status.ts';
import { type Program, startProgram } from '../kit/program.ts';
import { startReceiver } from '../kit/receiver.ts';
import { waitUntil } from '../kit/wait.ts';

const LOST_MS = 10_000;

test('when the only follower is killed or stopped, every other process is degraded after 10 s and names it until it is back', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const place = parts.use(await createTestDatabase('postgres'));
  const receiver = parts.use(await startReceiver());
  const start = (...roles: Role[]): Program => {
    const program = startProgram({ database: place, rpc: [chain.url], startBlock: 1, receiver, roles });
    parts.defer(async () => {
      program.child.kill('SIGKILL');
      await program.ended;
    });
    return program;
  };
  const started = (program: Program) =>
    waitUntil(() => {
      const line = program.log.split('\n').find((one) => one.includes('"service.started"'));
      return line === undefined ? undefined : (JSON.parse(line) as { api: string; process: string });
    });
  const api = start('api');
  start('delivery');
  let follower = start('follower');
  const { api: url } = await started(api);
  const status = async () => (await (await fetch(`${url}/status`)).json()) as KnownStatus;
  await chain.mine();
  const isFollowing = async () => {
    const body = await status();
    return body.state === 'ok' && body.chain.head !== null && body.lag_blocks === 0 && body;
  };

  for (const [how, state] of [
    ['SIGKILL', 'lost'],
    ['SIGTERM', 'stopped'],
  ] as const) {
    const { process: id } = await started(follower);
    const before = await waitUntil(isFollowing);
    assert.equal(before.processes.filter((one) => one.state === 'running').length, 3);
    follower.child.kill(how);
    await follower.ended;
    const endedMs = performance.now();
    const body = await waitUntil(async () => {
      const now = await status();
      return now.state === 'degraded' && now;
    });
    const tookMs = performance.now() - endedMs;
    assert.ok(tookMs < 3 * LOST_MS, `${how}: ${tookMs} ms`);
    assert.ok(body.problem?.message.includes(id), body.problem?.message);
    assert.equal(body.processes.find((one) => one.id === id)?.state, state);
    assert.equal(body.lag_blocks, null);
    const ready = await fetch(`${url}/readyz`);
    assert.equal(ready.status, 200);
    const { deployment } = (await ready.json()) as { deployment: { state: string } };
    assert.equal(deployment.state, 'degraded');
    const shown = await chainbell(place.dataDir, {}, 'status', '--url', url);
    assert.equal(shown.code, 75);
    assert.match(shown.out, /^problem +no process follows the chain/m);
    follower = start('follower');
    await waitUntil(isFollowing);
  }
});
