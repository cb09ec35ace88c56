/**
 * `chainbell verify` with a real streaming replica that is behind, while the service runs.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runVerification } from '../../src/app/verification.ts';
import { quantityOf } from '../../src/chain/blocks/bundle.ts';
import { sql } from '../../src/store/db/sql.ts';
import { startReceiver } from '../kit/receiver.ts';
import { startReplicaStage } from '../kit/replica-stage.ts';
import { createWatcher, freshAddress, testConfig } from '../kit/service.ts';

import { waitUntil } from '../kit/wait.ts';

/** Below the time for which a read waits for the replica, and above that between a block and its comparison. */
const DELAY_MS = 95;

test('verify reads from the replica, and what the replica lacks is no difference', async () => {
  await using parts = new AsyncDisposableStack();
  const { chain, receiver, pair, options, service, standby } = await startReplicaStage(parts);

  const watcher = await createWatcher(service, 'acme');
  const address = freshAddress();
  await watcher.watch({ address, webhookUrl: receiver.url });
  const pay = async () => {
    const paid = await chain.transferNative({ from: chain.accounts[1], to: address, valueWei: 1n });
    await service.inSync(chain);
    return paid;
  };
  const setAmount = (amount: number, block: number) =>
    service.database.query(sql`update notification set amount = ${amount} where block_number = ${block}`);
  /** Called before the node gives the traces of the block to verify, which are the last that it is asked for. */
  let beforeTraces = async (_block: number): Promise<unknown> => undefined;
  const verify = async (block: number) => {
    await using node = await startReceiver({
      async answer({ body }) {
        if (body.includes(`"trace_block","params":["${quantityOf(block)}"]`)) await beforeTraces(block);
        const headers = { 'content-type': 'application/json' };
        const answer = await fetch(chain.url, { method: 'POST', headers, body });
        return { headers, body: await answer.text() };
      },
    });
    const differences: string[] = [];
    const report = await runVerification(testConfig({ ...options, rpc: [node.url] }), {
      ...{ from: block, to: block, signal: new AbortController().signal },
      onDifference: ({ message }) => differences.push(message),
      onDissent: () => {},
      onProgress: () => {},
    });
    const { outcome, blocks, notifications, reads } = report;
    return { outcome, blocks, notifications, differences, reads };
  };
  const equal = { outcome: 'equal', blocks: 1, notifications: 1, differences: [] };

  await standby.query(`alter system set recovery_min_apply_delay = ${DELAY_MS}`);
  await standby.query('select pg_reload_conf()');
  let { blockNumber } = await pay();
  // Nodes are probed with the newest block.
  await chain.mine(2);
  await service.inSync(chain);
  for (let round = 0; round < 2; round += 1) {
    await setAmount(2, blockNumber);
    // The replica still has the wrong amount when the block arrives.
    beforeTraces = (block) => setAmount(1, block);
    const { reads, ...found } = await verify(blockNumber);
    assert.deepEqual(found, equal);
    assert.ok(reads !== undefined && reads.replica > 0, JSON.stringify(reads));
  }
  beforeTraces = async () => undefined;

  await standby.query('select pg_wal_replay_pause()');
  ({ blockNumber } = await pay());
  const paused = await verify(blockNumber);
  assert.deepEqual(paused, { ...equal, reads: { ...paused.reads, replica: 0 } });
  assert.match(paused.reads?.problem ?? '', /^has shown no new heartbeat/);
  await standby.query('select pg_wal_replay_resume()');

  await waitUntil(() => receiver.requests.length >= 2, { describe: 'the webhooks' });
  await setAmount(2, blockNumber);
  const changed = await verify(blockNumber);
  assert.deepEqual([changed.outcome, changed.differences.length], ['different', 1]);
  assert.ok((changed.reads?.replica ?? 0) > 0);

  await pair.killStandby();
  ({ blockNumber } = await pay());
  const alone = await verify(blockNumber);
  assert.deepEqual(alone, { ...equal, reads: { ...alone.reads, replica: 0 } });
  assert.match(alone.reads?.problem ?? '', /^can't be read: database: no connection .* database\.replicaUrl/);
});
