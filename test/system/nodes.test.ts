import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Hash } from '../../src/core/hex.ts';
import { createTestDatabase } from '../kit/database.ts';
import { startReceiver } from '../kit/receiver.ts';
import { chainMethods, makeHash, makeNodeBlock, startScriptedNode } from '../kit/scripted-node.ts';
import { CHAIN_ID, startTestService } from '../kit/service.ts';

type Status = {
  state: string;
  chain: { head: number };
  lag_blocks: number;
  nodes: { state: string; head: number }[];
};

test('the service follows despite a node that hangs, one of another chain, one that limits requests and one that is far ahead', async () => {
  await using place = await createTestDatabase('postgres');
  const blocks = [makeNodeBlock(0), makeNodeBlock(1), makeNodeBlock(2)];
  await using hanging = await startReceiver({ answer: 'hang' });
  await using foreign = await startScriptedNode(chainMethods(99, [makeNodeBlock(1_000_000, { branch: 9 })]));
  await using limited = await startScriptedNode(chainMethods(CHAIN_ID, blocks));
  await using good = await startScriptedNode(chainMethods(CHAIN_ID, blocks));
  await using second = await startScriptedNode(chainMethods(CHAIN_ID, blocks));
  await using ahead = await startScriptedNode(chainMethods(CHAIN_ID, [...blocks, makeNodeBlock(1_000)]));
  limited.setHttp({ status: 429, headers: { 'retry-after': '3600' } });
  await using service = await startTestService({
    database: place,
    rpc: [hanging.url, foreign.url, limited.url, good.url, second.url, ahead.url],
    // Invented blocks of a scripted node can't be proved. A quorum is three of six nodes, and only two can agree.
    chain: { verify: 'off', quorum: 2 },
  });
  const head = async (): Promise<{ number: number; hash: Hash }> => ({
    number: blocks.length - 1,
    hash: makeHash(0, blocks.length - 1, 0),
  });
  await service.inSync({ head });
  for (let number = 3; number < 6; number += 1) {
    blocks.push(makeNodeBlock(number));
    await service.inSync({ head });
  }
  const { state, chain, lag_blocks, nodes }: Status = JSON.parse(
    await (await fetch(`${service.apiUrl}/status`)).text(),
  );
  assert.equal(state, 'ok');
  assert.deepEqual([chain.head, lag_blocks], [5, 0], 'one node alone does not make a head');
  assert.equal(nodes[5]?.head, 1_000);
  const [hung, ...others] = nodes.map((node) => node.state);
  // After 30 s its first request is given up.
  assert.match(hung ?? '', /^(slow|failing)$/);
  assert.deepEqual(others, ['wrong_chain', 'limited', 'ok', 'ok', 'ok']);
  assert.equal(limited.exchangeCount(), 1, 'it is left alone for the hour');
});
