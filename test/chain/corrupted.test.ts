/**
 * Answers that Optimism's op-service corrupted on purpose are refused over HTTP, for the same reason as in op-service.
 */
import assert from 'node:assert/strict';
import path from 'node:path';
import { after } from 'node:test';
import { fetchBundles } from '../../src/chain/blocks/bundle.ts';
import type { Checks } from '../../src/chain/proof/block-checks.ts';
import { createCalibration } from '../../src/chain/proof/calibration.ts';
import { createProver } from '../../src/chain/proof/proof-pool.ts';
import { createRpc } from '../../src/chain/rpc/rpc.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { testWithRealchain } from '../kit/replay.ts';
import { chainMethods, type Json, startScriptedNode } from '../kit/scripted-node.ts';
import { realchainFolder } from '../kit/shared-data.ts';
import { readTarGz } from '../kit/tar.ts';

type Case = { name: string; fail?: boolean; reason?: string };
type Block = Json & { hash: string; number: string; transactions: (Json | string | null)[] };

/** The messages of op-service, and those of Chainbell. */
const reasons: Record<string, RegExp> = {
  'failed to verify block hash': /its header hash does not hold$/,
  'failed to verify transactions list': /its transactions root does not hold$/,
  'block tx 0 is nil': /transaction is not an object/,
  'failed to verify withdrawals list': /its withdrawals root does not hold$/,
  'block withdrawal 0 is null': /its withdrawals root does not hold$/,
};

/** Cases that can't be checked: the archive has no receipts, and for a header only the hashes of its transactions. */
const notStored: Record<string, Partial<Checks>> = {
  blocks: { receiptsRoot: 'holds' },
  headers: { receiptsRoot: 'holds', transactionsRoot: 'holds' },
};

const folder = realchainFolder();
const archive =
  folder === undefined ? new Map() : readTarGz(path.join(folder, 'bad-rpc/op-service-testdata.tar.gz'));
const cases = [...archive.keys()].filter((file) => file.endsWith('_metadata.json'));
const prover = createProver();
after(() => prover.close());

for (const file of cases) {
  const { name, fail = false, reason }: Case = readJson(file);
  const kind = path.basename(path.dirname(file));
  testWithRealchain(`${kind}/${name} is ${fail ? 'refused' : 'accepted'} in strict mode`, async () => {
    const block: Block = readJson(file.replace('_metadata', '_data'));
    const outcome = fetchStrictly(block, notStored[kind] ?? {});
    if (!fail) {
      assert.equal((await outcome)[0]?.header.hash, block.hash);
      return;
    }
    const message = kind === 'headers' ? /its header hash does not hold/ : reasons[reason ?? ''];
    assert.ok(message !== undefined, `the reason "${reason}" is known`);
    await assert.rejects(outcome, { name: 'Fault', code: 'inconsistent', message });
  });
}

testWithRealchain('the archive has the expected cases', () => {
  assert.equal(cases.length, 19);
  // It contains only these fields and their data.
  assert.equal(archive.size, 2 * cases.length);
  assert.equal(cases.filter((file) => readJson<Case>(file).fail === true).length, 15);
});

async function fetchStrictly(block: Block, given: Partial<Checks>) {
  const transactions = block.transactions.filter((one) => typeof one !== 'string');
  const receipts = transactions.map((one) => ({
    ...{ transactionHash: one?.hash, blockHash: block.hash },
    ...{ status: '0x1', logs: [] },
  }));
  await using node = await startScriptedNode(
    chainMethods(1, [{ block: { ...block, transactions }, receipts }]),
  );
  const rpc = createRpc(node.url, createMetrics('test'));
  const calibration = createCalibration({ mode: 'strict', chainId: 5, nodeCount: 1, enforced: [] });
  const plan = { batch: true, blockReceipts: true, traces: 'none' } as const;
  const { signal } = new AbortController();
  try {
    return await fetchBundles(
      rpc,
      [Number(block.number)],
      plan,
      signal,
      async ({ header: { number } }, raw) => ({
        proved: calibration.judge(`block ${number}`, { ...(await prover.prove(raw)), ...given }),
        senders: undefined,
      }),
    );
  } finally {
    await rpc.close();
  }
}

/** The JSON of a file of the archive. */
function readJson<Shape>(file: string): Shape {
  return JSON.parse(String(archive.get(file))) as Shape;
}
