/**
 * Blocks of the demo's chain at an interval, asked for one by one: told the interval itself, anvil 1.7.1 keeps 1,500 states
 * of the past where it is two seconds or less, whatever its own limit says, and writes them all with each save.
 */
import type { Clock } from '../src/core/clock.ts';
import type { Fault } from '../src/core/fault.ts';
import { runLoop } from '../src/core/loop.ts';
import type { Node } from './wallet.ts';

export type Mining = {
  /** No block comes any more once this resolves. */
  stop(): Promise<void>;
  /** Rejects if there is a bug; resolves with `stop`. */
  ended: Promise<void>;
};

const RETRY_MS_MAX = 5_000;

/** From now on transactions wait for the next block. */
export async function startMining(
  { node, clock }: { node: Node; clock: Clock },
  options: { onFault(fault: Fault): void; intervalMs: number },
): Promise<Mining> {
  await node.rpc('evm_setAutomine', [false]);
  const stopping = new AbortController();
  const ended = runLoop(
    async () => {
      await node.rpc('evm_mine');
      return 'idle';
    },
    {
      name: 'mining',
      clock,
      signal: stopping.signal,
      idleMs: () => options.intervalMs,
      retryMsMax: RETRY_MS_MAX,
      onFault: options.onFault,
    },
  );
  return {
    ended,
    stop() {
      stopping.abort();
      return ended;
    },
  };
}
