/**
 * Goes on reading the head while the follower can't, because the database holds it up or doesn't answer. Otherwise /status and the metrics
 * would show no lag behind a head that is no longer the newest.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import type { Step } from '../core/loop.ts';

type HeadWatch = {
  /** For the follower. */
  head: ChainNodes['head'];
  /** Reads the head if the follower has not for HEAD_MS. Run it every second. */
  step: Step;
};

/** The follower reads more often, except while it commits many blocks at once. */
const HEAD_MS = 3_000;

export function createHeadWatch(nodes: Pick<ChainNodes, 'head'>, clock: Pick<Clock, 'steadyMs'>): HeadWatch {
  /** Undefined until the follower has read one. */
  let readMs: number | undefined;
  let reading: Promise<unknown> | undefined;

  async function read(signal: AbortSignal): Promise<void> {
    try {
      await nodes.head(signal);
    } catch (error) {
      // The follower reports it when it goes on.
      if (!(error instanceof Fault)) throw error;
    }
  }

  return {
    async head(signal) {
      // Two rounds at once would count the same nodes as slow.
      await reading;
      readMs = clock.steadyMs();
      return nodes.head(signal);
    },
    async step(signal) {
      if (readMs === undefined || clock.steadyMs() - readMs < HEAD_MS) return 'idle';
      reading = read(signal).finally(() => {
        reading = undefined;
      });
      await reading;
      return 'idle';
    },
  };
}
