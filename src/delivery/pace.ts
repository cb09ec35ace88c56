/**
 * How many attempts may begin: at receivers that may hang a few in each moment, at the others fewer while the thread is busy.
 */
import { never } from '../core/abort.ts';
import type { Clock } from '../core/clock.ts';

/**
 * Attempts at receivers that may hang which begin within so long without an answer. Otherwise all that hang would end at once,
 * after 10 s, and others would take their places at once. `hanging`, for those of a watcher whose receivers hang that did not answer
 * last: about as many as end in that time once 512 of them are hung.
 */
const YOUNG_MS = 100;
const YOUNG_MAX = { usual: 32, hanging: 6 };
/** How the window follows the time that the thread needs for a turn of its event loop. */
const TURN_MS_MAX = 5;
const WINDOW_MIN = 128;

export type Pace = {
  /** Whether no further such attempt may begin at the moment. */
  isFull(kind: keyof typeof YOUNG_MAX): boolean;
  /** Such an attempt begins. Call what it returns once it has been decided or is over. */
  begin(): () => void;
};

/** `onRoom` is called when one more may begin. */
export function createPace(clock: Clock, onRoom: () => void): Pace {
  let young = 0;
  return {
    isFull: (kind) => young >= YOUNG_MAX[kind],
    begin() {
      let isYoung = true;
      young += 1;
      const grow = () => {
        if (!isYoung) return;
        isYoung = false;
        young -= 1;
        onRoom();
      };
      void clock.wait(YOUNG_MS, never).then(grow);
      return grow;
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
