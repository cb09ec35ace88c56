/**
 * Mines blocks of the demo's chain at an interval, one request for each. With its own interval of two seconds or less, anvil
 * 1.7.1 would keep 1,500 historical states despite its limit, and write all of them with each save.
 */
import type { Clock } from '../src/core/clock.ts';
import type { Fault } from '../src/core/fault.ts';
import { type Repeating, repeat } from './repeat.ts';
import type { RpcEndpoint } from './wallet.ts';

/** Starts mining. Transactions then wait for the next block. */
export async function startMining(
  { node, clock }: { node: RpcEndpoint; clock: Clock },
  options: { onFault(fault: Fault): void; intervalMs: number },
): Promise<Repeating> {
  await node.rpc('evm_setAutomine', [false]);
  const mine = async () => {
    await node.rpc('evm_mine');
  };
  return repeat(mine, { name: 'mining', clock, ...options });
}
