/**
 * Processes that share a database. The test sets the database's clock. Only the test knows the true time.
 */
import { type CommonClock, openCommonClock, type TimeSource } from '../../src/app/common-clock.ts';
import { type Clock, waitMs } from '../../src/core/clock.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createDeliverer } from '../../src/delivery/deliver.ts';
import type { SendOutcome } from '../../src/delivery/send.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import type { Database, Session } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { noon } from './chain-story.ts';
import { waitUntil } from './wait.ts';

const never = new AbortController().signal;

export type Attempt = { trueMs: number; told: unknown };

export function createTimeStory(database: Database, retryMinutes: readonly number[]) {
  let trueMs = 0;
  let setMs = 0;
  const attempts: Attempt[] = [];
  const wall = () => new Date(noon.getTime() + trueMs + setMs);
  /** What happens to the next readings of the clock. */
  const mishaps: ((read: Date) => Date)[] = [];
  let answer = async (): Promise<SendOutcome> => 'http_5xx';

  return {
    attempts,
    trueMs: () => trueMs,
    /** The database's clock, as set by the test. */
    wall,
    /** Lets true time pass. */
    advance(ms: number): void {
      trueMs += ms;
    },
    /** Sets the database's clock. */
    step(ms: number): void {
      setMs += ms;
    },
    /** The next reading arrives after so long. */
    delayReading(ms: number): void {
      mishaps.push((read) => {
        trueMs += ms;
        return read;
      });
    },
    /** The next reading is wrong by so much. */
    spoilReading(ms: number): void {
      mishaps.push((read) => new Date(read.getTime() + ms));
    },
    /** Chooses the outcomes of attempts, and what happens during an attempt. */
    onAttempt(next: () => Promise<SendOutcome>): void {
      answer = next;
    },
    /** Starts a process whose machine the test can pause. */
    async start() {
      let pausedMs = 0;
      const source: TimeSource = {
        readWall: async () => mishaps.shift()?.(wall()) ?? wall(),
        steadyMs: () => trueMs - pausedMs,
        wait: waitMs,
      };
      const log = silentLog();
      const common: CommonClock = await openCommonClock({ database, log, retryMinutes, source });
      const clock: Clock = common.clock;
      const session: Session = {
        tryLock: async () => true,
        unlock: async () => {},
        listen: async () => {},
        abandon() {},
        lost: never,
        close: async () => {},
      };
      const deliverer = createDeliverer({
        ...{ database, clock, log, metrics: createMetrics('test'), retryMinutes },
        keyRing: deriveKeyRing(Buffer.alloc(32)),
        nativeSymbol: 'ETH',
        session: async () => session,
        async send({ body }) {
          attempts.push({ trueMs, told: (JSON.parse(body) as { next_retry_at: unknown }).next_retry_at });
          return {
            outcome: await answer(),
            status: 500,
            durationMs: 1,
            requestCount: 1,
            mayHaveArrived: true,
            responseText: undefined,
          };
        },
      });
      return {
        ...common,
        follow: () => common.step(never),
        /** Pauses the machine of this process, but not the others. */
        pause(ms: number): void {
          trueMs += ms;
          pausedMs += ms;
        },
        async work(): Promise<void> {
          await deliverer.step(never);
          await waitUntil(
            async () => (await database.query(sql`select from lane where owner is not null`)).length === 0,
            { describe: 'the lanes to be given back' },
          );
        },
      };
    },
  };
}

export type TimeStory = ReturnType<typeof createTimeStory>;
