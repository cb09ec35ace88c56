/**
 * Blocks of the demo's chain at an interval, asked for one by one: told the interval itself, anvil 1.7.1 keeps 1,500 states
 * of the past where it is two seconds or less, whatever its own limit says, and writes them all with each save.
 */
import type { Clock } from '../src/core/clock.ts';
import type { Fault } from '../src/core/fault.ts';
import { type Repeating, repeat } from './repeat.ts';
import type { Node } from './wallet.ts';

/** From now on transactions wait for the next block. */
export async function startMining(
  { node, clock }: { node: Node; clock: Clock },
  options: { onFault(fault: Fault): void; intervalMs: number },
): Promise<Repeating> {
  await node.rpc('evm_setAutomine', [false]);
  const mine = async () => {
    await node.rpc('evm_mine');
  };
  return repeat(mine, { name: 'mining', clock, ...options });
}
