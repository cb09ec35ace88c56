/**
 * The chain of the soak: the demo's scene with its market, a block at a time, and reorgs. It keeps every block that was ever on the
 * chain.
 */
import { encodeCall } from '../../devnet/contracts.ts';
import { genesis } from '../../devnet/demo-chain.ts';
import { marketTrafficAt } from '../../devnet/market-traffic.ts';
import { createScene, type Scene } from '../../devnet/scene.ts';
import { trafficAt } from '../../devnet/traffic.ts';
import { quantity, type Transaction } from '../../devnet/wallet.ts';
import type { Address, Hash } from '../../src/core/hex.ts';
import { readBlocks } from '../faults/oracle.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import type { SeenBlock } from './oracle.ts';

type SoakChain = {
  chain: Chain;
  scene: Scene;
  /** The first block that the soak judges. */
  startBlock: number;
  /** All blocks since the last `forget`, orphaned ones too. */
  blocks: SeenBlock[];
  /** Hashes of the canonical blocks from `startBlock` on, by number. */
  canonical: Map<number, Hash>;
  transactions(): number;
  /** Mines a block with traffic and a payment to each of these addresses. */
  mineBlock(pays: readonly Address[]): Promise<void>;
  /** Mines blocks without transactions. */
  mineEmpty(blocks: number): Promise<void>;
  /** Replaces the newest blocks. Most of their transactions are mined again, in other blocks and another order. */
  reorg(depth: number): Promise<void>;
  /** Drops the blocks so far. Later reorgs must be above them. */
  forget(): void;
  [Symbol.asyncDispose](): Promise<void>;
};

const TRADERS_OF_BLOCK = 2;
const MARKET_OF_BLOCK = 3;
/** The part of the senders in orphaned blocks whose last transaction is not mined again. */
const DROPPED = 0.2;
const GAS_OF_PAYMENT = 100_000;
const COIN_PAYMENTS = 0.6;

export async function startSoakChain(random: () => number): Promise<SoakChain> {
  await using parts = new AsyncDisposableStack();
  const { accounts, coinsEach } = genesis;
  const chain = parts.use(
    await startChain({ extraArguments: ['--accounts', `${accounts}`, '--balance', `${coinsEach}`] }),
  );
  const scene = await createScene(chain);
  await chain.pauseMining();
  const startBlock = (await chain.head()).number + 1;
  const blocks: SeenBlock[] = [];
  const canonical = new Map<number, Hash>();
  let [turn, transactions] = [0, 0];

  /** Reads the blocks from this one on, which became canonical after `minedAt`. */
  async function see(from: number, minedAt: number): Promise<void> {
    for (const block of await readBlocks(chain.url, from)) {
      canonical.set(block.number, block.hash);
      blocks.push({ ...block, minedAt });
    }
  }

  function pay(to: Address): Transaction {
    const from = scene.visitor;
    const amount = BigInt(1 + Math.floor(random() * 1_000_000));
    if (random() < COIN_PAYMENTS) return { from, to, valueWei: amount, gas: GAS_OF_PAYMENT };
    const token = random() < 0.5 ? ('DemoToken' as const) : ('FeeToken' as const);
    const { contracts } = scene;
    return {
      from,
      to: token === 'DemoToken' ? contracts.token : contracts.feeToken,
      input: encodeCall({ contract: token, method: 'transfer', values: [to, amount] }),
      gas: GAS_OF_PAYMENT,
    };
  }

  const running = parts.move();
  return {
    ...{ chain, scene, startBlock, blocks, canonical },
    transactions: () => transactions,
    async mineBlock(pays) {
      const turns = (count: number) => Array.from({ length: count }, () => (turn += 1));
      const traffic = await Promise.all([
        ...turns(TRADERS_OF_BLOCK).map((one) => trafficAt(chain, scene, one)),
        ...turns(MARKET_OF_BLOCK).map((one) => marketTrafficAt(chain, scene, one, new Date())),
      ]);
      for (const transaction of [...traffic, ...pays.map(pay)]) {
        await chain.send(transaction);
        transactions += 1;
      }
      const minedAt = performance.now();
      await chain.mine();
      await see((await chain.head()).number, minedAt);
    },
    async mineEmpty(count) {
      const minedAt = performance.now();
      const { number } = await chain.head();
      await chain.mine(count);
      await see(number + 1, minedAt);
    },
    async reorg(depth) {
      const head = await chain.head();
      const from = head.number - depth + 1;
      const again = shuffle(await listRaw(chain, from, random), random).map((raw, index, { length }) => [
        raw,
        Math.floor((index * depth) / length),
      ]);
      const minedAt = performance.now();
      await chain.alone(() => chain.rpc('anvil_reorg', [depth, again]));
      await see(from, minedAt);
    },
    forget() {
      blocks.length = 0;
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

/** The transactions from this block on by sender, raw and in their order, without the last ones of some senders. */
async function listRaw(chain: Chain, from: number, random: () => number): Promise<unknown[][]> {
  const bySender = new Map<string, unknown[]>();
  const head = await chain.head();
  for (let number = from; number <= head.number; number += 1) {
    const block = Object(await chain.rpc('eth_getBlockByNumber', [quantity(number), true]));
    for (const transaction of block.transactions as { hash: string; from: string }[]) {
      const raw = await chain.rpc('eth_getRawTransactionByHash', [transaction.hash]);
      bySender.set(transaction.from, [...(bySender.get(transaction.from) ?? []), raw]);
    }
  }
  return Array.from(bySender.values(), (raws) => (random() < DROPPED ? raws.slice(0, -1) : raws));
}

/** Merges the lists in random order. Each list keeps its own order. */
function shuffle(lists: readonly unknown[][], random: () => number): unknown[] {
  const left = lists.map((list) => [...list]).filter(({ length }) => length > 0);
  const merged: unknown[] = [];
  while (left.length > 0) {
    const index = Math.floor(random() * left.length);
    merged.push(left[index]?.shift());
    if (left[index]?.length === 0) left.splice(index, 1);
  }
  return merged;
}
