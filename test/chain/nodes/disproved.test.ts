/**
 * A false answer of a node is shown, counted and logged, even after the node gives true answers again.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Checks } from '../../../src/chain/proof/block-checks.ts';
import { createCalibration } from '../../../src/chain/proof/calibration.ts';
import { Fault } from '../../../src/core/fault.ts';
import { createLog } from '../../../src/core/log.ts';
import { blocks, complete, nodeAt, withNodes } from '../../kit/nodes.ts';
import { makeAddress, makeHash } from '../../kit/scripted-node.ts';

const { signal } = new AbortController();
const headHash = makeHash(0, 9, 0);
/** Names another sender in the receipts than in the block. */
const forging = () => ({
  ...complete(),
  eth_getBlockReceipts: () => blocks[9]?.receipts.map((receipt) => ({ ...receipt, from: makeAddress(7) })),
});

test('a forged sender counts against the node that gave it, and stays visible after good answers', async () => {
  let text = '';
  const log = createLog({ level: 'warn', format: 'pretty' }, { write: (line) => (text += line) });
  const linesOf = () => text.split('\n').filter((line) => line.includes('node.disproved')).length;
  await withNodes(
    [forging(), complete()],
    async ({ scripted, nodes, clock, metrics }) => {
      await nodes.head(signal);
      assert.equal((await nodes.bundles([headHash], signal)).length, 1, 'of the other node');
      const at = clock.now();
      clock.advance(30_000);
      await nodes.bundles([headHash], signal);
      assert.equal(linesOf(), 1, 'one line a minute');
      nodeAt(scripted, 0).methods.eth_getBlockReceipts = complete().eth_getBlockReceipts ?? (() => null);
      clock.advance(30_000);
      await nodes.head(signal);
      const [liar, honest] = nodes.status();
      assert.equal(liar?.state, 'ok');
      assert.equal(liar?.disproved.count, 2);
      assert.equal(liar?.disproved.last?.at.getTime(), at.getTime() + 30_000);
      assert.match(liar?.disproved.last?.message ?? '', /^block 9 .* and by its receipt 0x0{39}7/);
      assert.deepEqual(honest?.disproved, { count: 0, last: undefined });
      const { values } = await metrics.rpcDisproved.get();
      assert.deepEqual(
        values.map(({ labels, value }) => [labels.node, value]),
        [[liar?.name, 2]],
      );
      Object.assign(nodeAt(scripted, 0).methods, forging());
      await nodes.bundles([headHash], signal);
      assert.equal(linesOf(), 2);
      assert.match(text, /"count":3/);
    },
    { internalTransfers: 'off', log },
  );
});

test('a node that is slow, unreachable or behind is not counted', () =>
  withNodes(
    [complete(), complete()],
    async ({ scripted, nodes, clock }) => {
      await nodes.head(signal);
      nodeAt(scripted, 0).setHttp({ status: 500 });
      await nodes.bundles([headHash], signal);
      nodeAt(scripted, 0).setHttp(undefined);
      Object.assign(nodeAt(scripted, 0).methods, { eth_getBlockByHash: () => null });
      clock.advance(30_000);
      await nodes.bundles([headHash], signal);
      assert.equal(nodes.status()[0]?.disproved.count, 0);
    },
    { internalTransfers: 'off' },
  ));

test('a broken check proves a lie only if the chain is known to honor it', () => {
  const broken: Checks = {
    ...{ headerHash: 'fails', transactionsRoot: 'holds', withdrawalsRoot: 'holds', receiptsRoot: 'holds' },
    ...{ transactionHashes: 'none', isEmpty: false, unencodableTypes: [] },
  };
  for (const [mode, isDisproof] of [
    ['strict', true],
    ['auto', false],
  ] as const) {
    const calibration = createCalibration({ mode, chainId: 31_337, nodeCount: 2, enforced: [] });
    assert.throws(
      () => calibration.judge('block 7', broken),
      (error) => error instanceof Fault && error.isDisproof === isDisproof,
    );
  }
});
