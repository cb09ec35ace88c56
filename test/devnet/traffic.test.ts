import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createScene, findScene } from '../../devnet/scene.ts';
import { startTraffic, trafficAt, trafficKinds } from '../../devnet/traffic.ts';
import { systemClock } from '../../src/core/clock.ts';
import { startChain } from '../kit/anvil.ts';
import { waitUntil } from '../kit/wait.ts';

test('a round of traffic has every kind of transaction, and only the failing one fails', async () => {
  await using chain = await startChain();
  const scene = await createScene(chain);
  for (let turn = 0; turn < 3 * trafficKinds.length; turn++) {
    const { succeeded } = await chain.execute(await trafficAt(chain, scene, turn));
    const kind = trafficKinds[turn % trafficKinds.length];
    assert.equal(succeeded, kind !== 'failing', `turn ${turn}: ${kind}`);
  }
});

test('traffic does not pile up on a chain that mines nothing, and stops on request', async () => {
  await using chain = await startChain();
  const scene = await createScene(chain);
  await chain.pauseMining();
  const faults: string[] = [];
  const onFault = (fault: Error) => faults.push(fault.message);
  const traffic = startTraffic(
    { node: chain, clock: systemClock() },
    (turn) => trafficAt(chain, scene, turn),
    { onFault, intervalMs: 1 },
  );
  const pool = async () => JSON.stringify(await chain.rpc('txpool_status'));
  await waitUntil(async () => (await pool()).includes('"pending":"0x14"'));
  await traffic.stop();
  assert.equal(await pool(), '{"pending":"0x14","queued":"0x0"}');
  assert.deepEqual(faults, []);
});

test('a scene is found again on its chain, and not on another one', async () => {
  await using chain = await startChain();
  const scene = await createScene(chain);
  assert.deepEqual(await findScene(chain), scene);
  await using other = await startChain();
  assert.equal(await findScene(other), undefined);
});
