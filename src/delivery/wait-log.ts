/**
 * Logs that delivery queues wait for the database. When it is away, all of them wait and try again a few times a second, so one line
 * stands for many.
 */
import type { Clock } from '../core/clock.ts';
import { messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import { createLogLimit } from '../core/log-limit.ts';

/** Records a wait of a lane. */
export type NoteWait = (lane: number, error: Error) => void;

const PAUSE_MS = 10_000;

/** `others` in a line is the number of waits since the line before. */
export function createWaitLog({ clock, log }: { clock: Pick<Clock, 'steadyMs'>; log: Log }): NoteWait {
  const limit = createLogLimit(clock, PAUSE_MS);
  return (lane, error) => {
    const others = limit();
    if (others !== undefined) log.warn({ lane, error: messageOf(error), others }, 'delivery.queue_waits');
  };
}
