import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { startAnvil } from '../../devnet/anvil.ts';
import { startMining } from '../../devnet/mining.ts';
import { findBlock } from '../../devnet/wallet.ts';
import { systemClock } from '../../src/core/clock.ts';
import { waitUntil } from '../kit/wait.ts';

test('blocks come by themselves, and the file of the chain keeps the states of the newest ones only', async (context) => {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-test-'));
  context.after(() => rm(folder, { recursive: true, force: true }));
  const stateFile = path.join(folder, 'state.json');
  await using anvil = await startAnvil({ port: 0, chainId: 31337, stateFile });
  const faults: string[] = [];
  const onFault = (fault: Error) => faults.push(fault.message);
  const mining = await startMining({ node: anvil, clock: systemClock() }, { onFault, intervalMs: 1 });
  await waitUntil(async () => ((await findBlock(anvil, 'latest'))?.number ?? 0) > 150, {
    describe: '150 blocks',
  });
  await mining.stop();
  await anvil.stop();
  const state: { historical_states: unknown[] } = JSON.parse(await readFile(stateFile, 'utf8'));
  assert.ok(state.historical_states.length <= 64, `${state.historical_states.length} states`);
  assert.deepEqual(faults, []);
});
