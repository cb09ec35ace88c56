/**
 * Limits how many attempts may start: a few at a time at receivers that may hang, and fewer at the others while the thread is busy.
 */
import { never } from '../core/abort.ts';
import type { Clock } from '../core/clock.ts';

/**
 * The most attempts that may start in each span at receivers that may hang, not counting those decided within it. Without this
 * limit, all that hang would end together after 10 s, and as many would start together. `crowded` is about as many as end in a span
 * while 512 hang. Attempts that start together are read, recorded and given back together, which takes few statements.
 */
const SPAN_MS = 100;
const BEGIN_MAX = { usual: 32, crowded: 6 };
/** The window shrinks while a turn of the event loop takes longer than this. */
const TURN_MS_MAX = 5;
const WINDOW_MIN = 128;

type Pace = {
  /** Whether no further attempt of this kind may start in this span. */
  isFull(kind: keyof typeof BEGIN_MAX): boolean;
  /** Counts an attempt that starts. Call the returned function once it is decided or over. */
  begin(): () => void;
};

/** Calls `onRoom` when more attempts may start. */
export function createPace(clock: Clock, onRoom: () => void): Pace {
  let begun = 0;
  /** Counts spans, because an attempt of an earlier span makes no room in this one. */
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

type StartWindow = {
  /** The most concurrent attempts. */
  size(): number;
  /** Call it in a turn of the event loop in which attempts start. The next turn shows how busy the thread is. */
  measure(): void;
};

export function createStartWindow(max: number): StartWindow {
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
