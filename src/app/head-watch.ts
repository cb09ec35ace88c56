/**
 * Goes on reading the head while the follower can't, because the database holds it up or doesn't answer. Otherwise the head of /status
 * and the metrics would stand still.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import type { Step } from '../core/loop.ts';

type HeadWatch = {
  /** For the follower. */
  head: ChainNodes['head'];
  /** Reads the head if it has not been read for HEAD_MS. Run it every second. */
  step: Step;
};

/** The follower reads more often, except while a step takes longer. */
const HEAD_MS = 3_000;
/** How long the follower waits for a read of this watch. A node may take half a minute to fail. */
const WAIT_MS_MAX = 500;

export function createHeadWatch(nodes: Pick<ChainNodes, 'head'>, clock: Clock): HeadWatch {
  /** When the last read ended. Undefined until the follower has read a head. */
  let readMs: number | undefined;
  let isFollowerReading = false;
  let reading: Promise<void> | undefined;

  async function read(signal: AbortSignal): Promise<void> {
    try {
      await nodes.head(signal);
    } catch (error) {
      // The follower reports it when it goes on.
      if (!(error instanceof Fault)) throw error;
    } finally {
      readMs = clock.steadyMs();
      reading = undefined;
    }
  }

  return {
    async head(signal) {
      isFollowerReading = true;
      try {
        // Two rounds at once would count the same nodes as slow.
        if (reading !== undefined)
          await firstOrLate({ clock, signal }, [reading.catch(() => {})], WAIT_MS_MAX);
        return await nodes.head(signal);
      } finally {
        isFollowerReading = false;
        readMs = clock.steadyMs();
      }
    },
    async step(signal) {
      const isDue = readMs !== undefined && clock.steadyMs() - readMs >= HEAD_MS;
      if (!isDue || isFollowerReading) return 'idle';
      reading = read(signal);
      await reading;
      return 'idle';
    },
  };
}
