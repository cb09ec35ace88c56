/**
 * Data of the API as a signal: it loads, loads again in time, keeps the last value through a failure, and rests while the tab
 * is hidden.
 */
import { type Signal, signal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { scope } from '../state/session.ts';
import { ApiError, retryMsAfter } from './client.ts';

export type Loaded<T> = {
  data: T | undefined;
  /** When the data arrived, by this machine's clock. */
  at: number | undefined;
  /** The reason why loading fails now. The data is then that of `at`. */
  error: ApiError | undefined;
};

export type Resource<T> = {
  state: Signal<Loaded<T>>;
  /** Loads now, unless the component is gone. Resolves when that has succeeded or failed. */
  reload(): Promise<void>;
  /** Changes the data before the server confirms it. */
  change(edit: (data: T) => T): void;
};

type Options = {
  /** Loads again after this time. Without it, only `reload` does. */
  everyMs?: number;
  /** False: nothing is loaded. */
  when?: boolean;
};

/** For lists that change seldom. */
export const SLOW_MS = 60_000;
/** Pages that were seen lately appear at once when the visitor comes back to them. */
const KEPT_MAX = 40;
/** How soon a hidden tab looks whether it is shown again. */
const HIDDEN_MS = 2_000;
const kept = new Map<string, Loaded<unknown>>();

/** A resource outside of components. It loads from now on. */
export function createResource<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  everyMs: number,
): Resource<T> {
  const resource = startResource(key, load, everyMs);
  resource.start();
  return resource;
}

/** Loads what `key` names. Another key or another session starts from nothing. */
export function useResource<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  { everyMs, when = true }: Options = {},
): Resource<T> {
  const fullKey = `${scope.value} ${key}`;
  const resource = useMemo(() => startResource(fullKey, load, everyMs), [fullKey, everyMs]);
  useEffect(() => {
    if (!when) return undefined;
    resource.start();
    return resource.stop;
  }, [resource, when]);
  return resource;
}

/** Forgets everything, so that the next one who signs in sees nothing of it. */
export const forgetAll = (): void => kept.clear();

function startResource<T>(
  key: string,
  load: (signal: AbortSignal) => Promise<T>,
  everyMs: number | undefined,
) {
  const state = signal<Loaded<T>>(
    (kept.get(key) as Loaded<T> | undefined) ?? { data: undefined, at: undefined, error: undefined },
  );
  let abort: AbortController | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let failures = 0;
  let isStarted = false;

  async function reload(): Promise<void> {
    if (!isStarted) return;
    abort?.abort();
    clearTimeout(timer);
    const own = new AbortController();
    abort = own;
    try {
      const data = await load(own.signal);
      if (own.signal.aborted) return;
      failures = 0;
      set({ data, at: Date.now(), error: undefined });
    } catch (error) {
      if (own.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      failures += 1;
      state.value = { ...state.value, error };
    } finally {
      if (!own.signal.aborted) plan();
    }
  }

  function plan(): void {
    const { error } = state.value;
    const waitMs = (error && retryMsAfter(error, failures)) ?? everyMs;
    if (waitMs !== undefined) timer = setTimeout(onTime, waitMs);
  }

  function onTime(): void {
    if (document.hidden) timer = setTimeout(onTime, HIDDEN_MS);
    else void reload();
  }

  function set(next: Loaded<T>): void {
    state.value = next;
    kept.delete(key);
    kept.set(key, next);
    const [oldest] = kept.keys();
    if (kept.size > KEPT_MAX && oldest !== undefined) kept.delete(oldest);
  }

  return {
    state,
    reload,
    change(edit: (data: T) => T): void {
      if (state.value.data !== undefined) set({ ...state.value, data: edit(state.value.data) });
    },
    start(): void {
      isStarted = true;
      void reload();
    },
    stop(): void {
      isStarted = false;
      abort?.abort();
      clearTimeout(timer);
    },
  };
}
