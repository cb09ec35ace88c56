/**
 * Creates a signal for one piece of work under a long-lived signal. It doesn't use `AbortSignal.any`, which accumulates on a
 * long-lived parent, or `AbortSignal.timeout`, which outlives its work. Both leaked memory in measurements.
 */
import { once } from 'node:events';
import { Fault } from './fault.ts';

export type WorkAbort = {
  readonly signal: AbortSignal;
  abort(reason?: unknown): void;
  /** Ends the timer and the link to the parent. Call it when the work is done. */
  release(): void;
};

/** Never aborts. For a wait that only its timeout may end. */
export const never = new AbortController().signal;

/** Shared, because creating an error with a stack for each piece of work is a large part of the cost of a delivery. */
const ENDED = new DOMException('this work has ended', 'AbortError');

/** Listeners by signal. An EventTarget would compare each new listener with all existing ones. */
const listenersOf = new WeakMap<AbortSignal, Set<() => void>>();

/** Calls `listener` once when the signal aborts, unless the returned function was called before. */
export function onAbort(signal: AbortSignal, listener: () => void): () => void {
  const known = listenersOf.get(signal);
  const listeners = known ?? new Set();
  if (known === undefined) {
    listenersOf.set(signal, listeners);
    const callAll = () => {
      for (const one of listeners) one();
    };
    signal.addEventListener('abort', callAll, { once: true });
  }
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/**
 * Aborts with the parent, on request, or after `timeoutMs` if the work is still under way once everything that had arrived by then is
 * read. The reason of a timeout is a Fault, so that code that throws the reason fails in the same way as without an answer.
 */
export function startAbort(parent: AbortSignal, timeoutMs?: number): WorkAbort {
  const own = new AbortController();
  const onParent = () => own.abort(parent.reason);
  const onTimeout = () => own.abort(new Fault('unavailable', `no answer within ${timeoutMs} ms`));
  // The event loop reads sockets between a timer and `setImmediate`. A process that was suspended for longer than the timeout would
  // otherwise give up on an answer that has arrived.
  let lastRead: NodeJS.Immediate | undefined;
  const onTime = () => {
    lastRead = setImmediate(onTimeout);
  };
  const timer = timeoutMs === undefined ? undefined : setTimeout(onTime, timeoutMs);
  if (parent.aborted) onParent();
  const leave = onAbort(parent, onParent);
  return {
    signal: own.signal,
    abort: (reason = ENDED) => own.abort(reason),
    release() {
      clearTimeout(timer);
      clearImmediate(lastRead);
      leave();
    },
  };
}

/** Resolves when the signal aborts. */
export async function abortOf(signal: AbortSignal): Promise<undefined> {
  if (!signal.aborted) await once(signal, 'abort');
  return undefined;
}
