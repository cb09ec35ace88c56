/**
 * Traffic on the demo's chain, one transaction after another. Traders send every kind of transfer that rings, and kinds that must
 * not ring. market-traffic.ts has the traffic on the market.
 */
import type { Clock } from '../src/core/clock.ts';
import type { Fault } from '../src/core/fault.ts';
import type { Address } from '../src/core/hex.ts';
import { encodeCall } from './contracts.ts';
import { type Repeating, repeat } from './repeat.ts';
import type { Scene } from './scene.ts';
import { type RpcEndpoint, readContract, sendTransaction, type Transaction } from './wallet.ts';

/** All kinds of transactions in turn, each from one trader to the next. */
export const trafficKinds = [
  'native',
  'token',
  'internal',
  'fee token',
  'collectible',
  'native',
  'token',
  'failing',
  'reverted internal',
] as const;

type TrafficKind = (typeof trafficKinds)[number];

/** Waiting transactions at most, so that a chain that mines slowly or not at all is not overloaded. */
const PENDING_TRANSACTIONS_MAX = 20;

/** Sends the transaction of one turn after another at the interval, until it is stopped. */
export function startTraffic(
  { node, clock }: { node: RpcEndpoint; clock: Clock },
  transactionAt: (turn: number) => Promise<Transaction>,
  options: { onFault(fault: Fault): void; intervalMs: number },
): Repeating {
  let turn = 0;
  const send = async () => {
    if ((await countPending(node)) >= PENDING_TRANSACTIONS_MAX) return;
    await sendTransaction(node, await transactionAt(turn));
    turn++;
  };
  return repeat(send, { name: 'traffic', clock, ...options });
}

/** The transaction of a turn: the kinds in order, with the next sender after each round. */
export async function trafficAt(node: RpcEndpoint, scene: Scene, turn: number): Promise<Transaction> {
  const kind = trafficKinds[turn % trafficKinds.length] ?? 'native';
  const round = Math.floor(turn / trafficKinds.length);
  const from = traderAt(scene, round);
  const to = traderAt(scene, round + 1);
  const thousandths = BigInt(1 + ((turn * 37) % 250));
  return transactionOf(node, scene, { kind, from, to, thousandths });
}

async function transactionOf(
  node: RpcEndpoint,
  { traders, contracts }: Scene,
  move: { kind: TrafficKind; from: Address; to: Address; thousandths: bigint },
): Promise<Transaction> {
  const { kind, from, to, thousandths } = move;
  const valueWei = thousandths * 10n ** 15n;
  switch (kind) {
    case 'native':
      return { from, to, valueWei };
    case 'token': {
      const call = {
        contract: 'DemoToken',
        method: 'transfer',
        values: [to, thousandths * 10n ** 4n],
      } as const;
      return { from, to: contracts.token, input: encodeCall(call) };
    }
    case 'fee token': {
      const call = {
        contract: 'FeeToken',
        method: 'transfer',
        values: [to, thousandths * 10n ** 16n],
      } as const;
      return { from, to: contracts.feeToken, input: encodeCall(call) };
    }
    case 'collectible': {
      const collectible = { contract: 'DemoCollectible' } as const;
      const owner = await readContract(node, contracts.collectible, {
        ...collectible,
        method: 'ownerOf',
        values: [1n],
      });
      const sender = traders.find((trader) => trader === String(owner).toLowerCase()) ?? from;
      const receiver = traders[(traders.indexOf(sender) + 1) % traders.length] ?? to;
      const call = { ...collectible, method: 'transferFrom', values: [sender, receiver, 1n] };
      return { from: sender, to: contracts.collectible, input: encodeCall(call) };
    }
    case 'internal': {
      const receivers = traders.filter((trader) => trader !== from);
      const call = { contract: 'Splitter', method: 'split', values: [receivers] } as const;
      return {
        from,
        to: contracts.splitter,
        valueWei: valueWei * BigInt(receivers.length),
        input: encodeCall(call),
      };
    }
    case 'reverted internal': {
      const others = traders.filter((trader) => trader !== from && trader !== to);
      const call = {
        contract: 'Splitter',
        method: 'splitWithRevertedHalf',
        values: [to, others[0] ?? from],
      } as const;
      return { from, to: contracts.splitter, valueWei, input: encodeCall(call) };
    }
    case 'failing':
      // A token contract accepts no coins, so the transaction fails (status 0) and the value stays.
      return { from, to: contracts.token, valueWei };
  }
}

function traderAt({ traders }: Scene, round: number): Address {
  return traders[round % traders.length] ?? traders[0];
}

async function countPending(node: RpcEndpoint): Promise<number> {
  const status = await node.rpc('txpool_status');
  return typeof status === 'object' && status !== null && 'pending' in status ? Number(status.pending) : 0;
}
