/**
 * Wakes the streams of attempts when attempts are settled: at once in the process that settles them, and over NOTIFY in other
 * processes. A process sends NOTIFY only while another one has streams, because each takes a lock of the whole server at its commit.
 * Streams also poll, so a lost notice delays an event but loses none.
 */
import { randomUUID } from 'node:crypto';
import type { AttemptBell } from '../api/context.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import { createWake, type Step, type Wake } from '../core/loop.ts';
import type { Database } from '../store/db/db.ts';
import { notifyAttempts } from '../store/delivery/attempt-events.ts';

export type RingingBell = AttemptBell & {
  /** Attempts of these watchers were settled by this process. */
  ring(watcherIds: readonly number[]): void;
  /** Takes the payload of a NOTIFY on ATTEMPT_CHANNEL. */
  hear(payload: string): void;
  /** Says that this process has streams. Run it every `ASK_MS`, in processes with streams. */
  ask: Step;
  /** Rings when the first stream begins. */
  askWake: Wake;
};

type BellOptions = {
  database: Database;
  clock: Clock;
  /** Opens the session that listens. */
  session(): Promise<unknown>;
  signal: AbortSignal;
};

export const ASK_MS = 5_000;
/** How long a process sends notices after the last one was asked for. */
const WANTED_MS = 3 * ASK_MS;
/** Between two notices of a process. Those that come meanwhile are sent together. */
const GAP_MS = 25;
/** PostgreSQL limits a payload to 8,000 bytes. */
const PAYLOAD_WATCHERS_MAX = 500;
const [ASK, SETTLED] = ['ask', 'settled'];
const ANY = '*';

export function createAttemptBell({ database, clock, session, signal }: BellOptions): RingingBell {
  const own = randomUUID();
  const listeners = new Map<number | undefined, Set<() => void>>();
  const askWake = createWake(clock);
  let wantedUntilMs = Number.NEGATIVE_INFINITY;
  let unsent = new Set<number>();
  let isSending = false;

  function tell(watcherIds: Iterable<number> | typeof ANY): void {
    const ids = watcherIds === ANY ? listeners.keys() : [...watcherIds, undefined];
    for (const id of ids) for (const onRing of listeners.get(id) ?? []) onRing();
  }

  async function send(): Promise<void> {
    isSending = true;
    while (unsent.size > 0 && !signal.aborted) {
      const ids = unsent.size <= PAYLOAD_WATCHERS_MAX ? [...unsent].join(',') : ANY;
      unsent = new Set();
      try {
        await notifyAttempts(database, `${SETTLED} ${ids}`);
      } catch (error) {
        // The streams poll.
        if (!(error instanceof Fault)) throw error;
      }
      await clock.wait(GAP_MS, signal);
    }
    isSending = false;
  }

  return {
    askWake,
    ring(watcherIds) {
      tell(watcherIds);
      if (clock.steadyMs() >= wantedUntilMs) return;
      for (const id of watcherIds) unsent.add(id);
      if (!isSending) void send();
    },
    listen(watcherId, onRing) {
      const isFirst = listeners.size === 0;
      const own = listeners.get(watcherId) ?? new Set();
      listeners.set(watcherId, own.add(onRing));
      if (isFirst) askWake.ring();
      return () => {
        own.delete(onRing);
        if (own.size === 0 && listeners.get(watcherId) === own) listeners.delete(watcherId);
      };
    },
    hear(payload) {
      const [word, what = ''] = payload.split(' ');
      if (word === SETTLED) tell(what === ANY ? ANY : what.split(',').map(Number));
      else if (word === ASK && what !== own) wantedUntilMs = clock.steadyMs() + WANTED_MS;
    },
    async ask() {
      // Only one process uses an embedded database.
      if (listeners.size === 0 || database.kind === 'embedded') return 'idle';
      await session();
      await notifyAttempts(database, `${ASK} ${own}`);
      return 'idle';
    },
  };
}
