/**
 * Records outcomes in groups: what arrives while one commit runs goes into the next.
 */
import { setImmediate } from 'node:timers/promises';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import type { Database } from '../store/db.ts';
import { type Settlement, settle } from '../store/outbox.ts';

export type Settler = {
  /** Resolves when the outcome is durable, or 'lost' when the lane belongs to another worker now. */
  submit(settlement: Settlement): Promise<'settled' | 'lost'>;
};

type Waiting = {
  settlement: Settlement;
  resolve: (outcome: 'settled' | 'lost') => void;
  reject: (error: unknown) => void;
};

/** Bounds one statement; at 3,000 deliveries a second a commit of 10 ms gathers about 30. */
const GROUP_MAX = 500;
/** Half of what one receiver is sent at once, so that half of it goes out while the other half is recorded. */
const GATHER_MAX = 64;
const RETRY_MS = 250;

/**
 * A settler that keeps trying while the database is away: an answer that came must not be asked for again (trap 16 of
 * the delivery reference). After the signal aborts it gives up instead, and the rows stay due.
 */
export function createSettler(options: {
  database: Database;
  clock: Clock;
  log: Log;
  signal: AbortSignal;
}): Settler {
  const { database, clock, log, signal } = options;
  let queue: Waiting[] = [];
  let isRunning = false;

  async function run(): Promise<void> {
    while (queue.length > 0) {
      await gather();
      const group = queue.slice(0, GROUP_MAX);
      queue = queue.slice(GROUP_MAX);
      await commit(group);
    }
  }

  /** Where outcomes come in every turn of the event loop, a few turns more make one large commit of many small ones. */
  async function gather(): Promise<void> {
    for (let before = 0; queue.length > before && queue.length < GATHER_MAX; ) {
      before = queue.length;
      await setImmediate();
    }
  }

  async function commit(group: readonly Waiting[]): Promise<void> {
    for (;;) {
      try {
        const lost = await settle(
          database,
          group.map(({ settlement }) => settlement),
        );
        for (const { settlement, resolve } of group) resolve(lost.has(settlement) ? 'lost' : 'settled');
        return;
      } catch (error) {
        if (!(error instanceof Fault) || signal.aborted) {
          for (const { reject } of group) reject(error);
          return;
        }
        log.warn({ outcomes: group.length, error: messageOf(error) }, 'delivery.settle_waits');
        await clock.wait(RETRY_MS, signal);
      }
    }
  }

  return {
    submit: (settlement) =>
      new Promise((resolve, reject) => {
        queue.push({ settlement, resolve, reject });
        if (isRunning) return;
        isRunning = true;
        // commit() hands every error to the waiting submitters, so this cannot reject.
        void run().finally(() => {
          isRunning = false;
        });
      }),
  };
}
