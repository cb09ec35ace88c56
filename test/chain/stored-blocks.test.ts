/**
 * Proves every block in the data folder, of every chain, without exception.
 */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { gunzipSync } from 'node:zlib';
import { proveBlock } from '../../src/chain/proof/prove-block.ts';
import { readBlock } from '../kit/real-blocks.ts';
import { readRealchain, testWithRealchain } from '../kit/replay.ts';
import type { Json } from '../kit/scripted-node.ts';

const whole = 'holds holds holds';

/**
 * The results for blocks of other chains, from the notes in their folders: header hash, transactions root, receipts root.
 * Unknown where only the chain itself can encode a transaction.
 */
const others: Record<string, string> = {
  'chains/ethereum-4369999/': whole,
  'chains/hyperliquid-50000/': whole,
  'chains/arb-sepolia/185232421.': 'holds unknown holds',
  'chains/arbitrum-150000000/': 'holds unknown holds',
  'chains/bittensor-testnet-6646068/': 'fails fails holds',
  'chains/cronos-10000/': 'fails fails fails',
  // The node lists too few receipts.
  'chains/cronos-6541/': 'fails fails fails',
  'chains/cronos-68216/': 'fails fails fails',
  'chains/cronos-6542/': 'fails fails fails',
  'chains/cronos-68215/': 'fails fails fails',
  'chains/tempo-mainnet-20636966/': 'fails holds holds',
  'chains/tempoModerato-6541/': 'fails holds holds',
  // Stored without receipts, so the receipts root can't match.
  'chains/arb-sepolia/185232422.': 'holds unknown unknown',
  'chains/gnosis-40000000/': 'holds holds fails',
  'chains/rise-8138510/': 'holds holds fails',
  'chains/stable-13683593/': 'fails holds unknown',
  'chains/stable-14692806/': 'fails holds unknown',
  'chains/stable-testnet-61696562/': 'fails unknown unknown',
};

testWithRealchain('every stored block passes exactly the checks that its chain honors', (folder) => {
  const places = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('block.json.gz'))
    .map((file) => file.replaceAll(path.sep, '/').replace('block.json.gz', ''));
  const found = places.map((place) => {
    const { block, receipts } = readBlock(folder, place);
    return `${place} ${proved(block, receipts)}`;
  });
  const mainnet = readRealchain<{ source: string; number: number }[]>(folder, 'manifest.json');
  const expected = [
    ...Object.entries(others).map(([place, outcome]) => `${place} ${outcome}`),
    ...mainnet.map(({ source, number }) => `${source}/${number}. ${whole}`),
  ];
  assert.deepEqual(found.toSorted(), expected.toSorted());
});

testWithRealchain('all 4,096 stored blocks of Sepolia are proved, empty or not', (folder) => {
  const lines = gunzipSync(readFileSync(path.join(folder, 'sepolia/blocks.jsonl.gz')))
    .toString()
    .trim();
  const blocks = lines.split('\n').map((line): { block: Json; receipts: Json[] } => JSON.parse(line));
  for (const { block, receipts } of blocks)
    assert.equal(proved(block, receipts), whole, String(block.number));
  assert.equal(blocks.length, 4_096);
});

testWithRealchain(
  'the recorded mainnet blocks without receipts are proved except for the receipts',
  (folder) => {
    for (const pair of ['02', '04']) {
      const file = `erigon-pairs/eth_getBlockByNumber__test_${pair}.json.gz`;
      const { result } = readRealchain<{ result: Json }>(folder, file);
      assert.equal(proved(result, []), 'holds holds fails', file);
    }
  },
);

function proved(block: Json, receipts: readonly Json[]): string {
  const { headerHash, transactionsRoot, withdrawalsRoot, receiptsRoot } = proveBlock(block, receipts);
  const areListed = Array.isArray(block.withdrawals) && block.withdrawals.length > 0;
  assert.equal(withdrawalsRoot, areListed ? 'holds' : 'none');
  return `${headerHash} ${transactionsRoot} ${receiptsRoot}`;
}
