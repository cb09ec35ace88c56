/**
 * How many attempts may begin: at receivers that may hang a few in each moment, at the others fewer while the thread is busy.
 */
import { never } from '../core/abort.ts';
import type { Clock } from '../core/clock.ts';

/**
 * In each span so many attempts at receivers that may hang begin, not counting those that are decided within it. Without this, all
 * that hang would end together after 10 s, and as many would begin together. `crowded` is about what ends in a span while 512
 * hang. Attempts that begin together are read, recorded and given back together, which takes few statements.
 */
const SPAN_MS = 100;
const BEGIN_MAX = { usual: 32, crowded: 6 };
/** How the window follows the time that the thread needs for a turn of its event loop. */
const TURN_MS_MAX = 5;
const WINDOW_MIN = 128;

export type Pace = {
  /** Whether no further such attempt may begin at the moment. */
  isFull(kind: keyof typeof BEGIN_MAX): boolean;
  /** Such an attempt begins. Call what it returns once it has been decided or is over. */
  begin(): () => void;
};

/** `onRoom` is called when more may begin. */
export function createPace(clock: Clock, onRoom: () => void): Pace {
  let begun = 0;
  /** Counts spans: what began in an earlier one makes no room in this one. */
  let span = 0;
  let isOver = true;

  async function startSpan(): Promise<void> {
    isOver = false;
    await clock.wait(SPAN_MS, never);
    isOver = true;
    span += 1;
    begun = 0;
    onRoom();
  }

  return {
    isFull: (kind) => begun >= BEGIN_MAX[kind],
    begin() {
      if (isOver) void startSpan();
      begun += 1;
      let own: number | undefined = span;
      return () => {
        if (own === span) {
          begun -= 1;
          onRoom();
        }
        own = undefined;
      };
    },
  };
}

export type Window = {
  /** Attempts at once. */
  size(): number;
  /** Call it in a turn of the event loop in which attempts begin: the next one shows how busy the thread is. */
  measure(): void;
};

export function createWindow(max: number): Window {
  let size = max;
  return {
    size: () => size,
    measure() {
      const beganMs = performance.now();
      setImmediate(() => {
        const isLong = performance.now() - beganMs > TURN_MS_MAX;
        const smaller = Math.max(size - (size >> 3), Math.min(WINDOW_MIN, max));
        size = isLong ? smaller : Math.min(size + 1, max);
      });
    },
  };
}
