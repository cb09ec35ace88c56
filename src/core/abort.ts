/**
 * A signal for one piece of work below a long-lived one. By hand, because `AbortSignal.any` piles up on a long-lived
 * parent and `AbortSignal.timeout` lives on after its work: both were measured as memory that only grows.
 */
import { once } from 'node:events';
import { Fault } from './fault.ts';

export type WorkAbort = {
  readonly signal: AbortSignal;
  abort(reason?: unknown): void;
  /** Ends the timer and the link to the parent; to be called when the work is done. */
  release(): void;
};

/** For a wait that only its own time ends. */
export const never = new AbortController().signal;

/** One for all: an error with a stack for each work that simply ends is much of what a delivery costs. */
const ENDED = new DOMException('this work has ended', 'AbortError');

/**
 * Aborts with the parent, after `timeoutMs`, or on request. The reason of a timeout is a Fault, so that code which throws
 * the reason fails as it does without an answer.
 */
export function startAbort(parent: AbortSignal, timeoutMs?: number): WorkAbort {
  const own = new AbortController();
  const onParent = () => own.abort(parent.reason);
  const onTimeout = () => own.abort(new Fault('unavailable', `no answer within ${timeoutMs} ms`));
  const timer = timeoutMs === undefined ? undefined : setTimeout(onTimeout, timeoutMs);
  if (parent.aborted) onParent();
  else parent.addEventListener('abort', onParent, { once: true });
  return {
    signal: own.signal,
    abort: (reason = ENDED) => own.abort(reason),
    release() {
      clearTimeout(timer);
      parent.removeEventListener('abort', onParent);
    },
  };
}

/** Resolves when the signal aborts. */
export async function abortOf(signal: AbortSignal): Promise<undefined> {
  if (!signal.aborted) await once(signal, 'abort');
  return undefined;
}
