/**
 * The stream of delivery attempts: one connection for the page, shared by its parts. It backs off, resumes after the last event,
 * and closes while the tab is hidden, because a browser opens only six connections to a host.
 */
import { effect, type Signal, signal } from '@preact/signals';
import { announce } from '../state/announce.ts';
import { serverNow } from '../state/clock.ts';
import { chooseWatcher, chosenWatcher, scope, session } from '../state/session.ts';
import { texts } from '../texts.ts';
import { ApiError, send, serviceProblem, unreachableSince } from './client.ts';
import { createEventReader } from './sse.ts';
import type { AttemptEvent, EventDelivery } from './types.ts';

/** Without a notification if retention has deleted it. */
type EventData = Omit<AttemptEvent, 'notification'> & { notification: EventDelivery | null };

type StreamState =
  | { kind: 'off' | 'connecting' | 'live' | 'hidden' }
  | { kind: 'broken'; since: number; retryAt: number; isRefused: boolean };

type Listener = {
  /** Called with attempts in the order of their ids, in batches. */
  onAttempts(attempts: AttemptEvent[]): void;
  /**
   * The stream is open and begins with new attempts only. Load the newest page, so that nothing is missing between both.
   */
  onFresh(why: Beginning): void;
};

/** At the start, after more than MISSED_MAX missed attempts, or because the database was replaced, so that no former row counts. */
export type Beginning = 'start' | 'missed' | 'replaced';

/** While few attempts arrive, each is shown soon. While many do, they come in batches. */
const BATCH_MS = { few: 50, many: 250 } as const;
const FEW_PER_SECOND_MAX = 10;
const BURST_MS_MAX = 1_000;
/**
 * A larger batch is shown in portions. A list's rows change with each portion, however small, so one takes as many attempts as a list
 * has rows (bench/console.ts).
 */
const PORTION = 60;
const PORTION_MS = 100;
const BACK_OFF_MS_MAX = 30_000;
/** A stream that was open for so long, or that sent an attempt, was a good one. */
const STEADY_MS = 5_000;
/** The server sends a comment every 15 s. */
const SILENCE_MS_MAX = 40_000;
const MISSED_MAX = 1_000;

export const streamState: Signal<StreamState> = signal({ kind: 'off' });

/** Whether attempts come faster than anyone can read, and not only for the moment after a block. */
export const isBusy = (): boolean => performance.now() - calmAt > BURST_MS_MAX;

/** Whether the newest attempts, one more than a few, arrived within a second. */
const areMany = (): boolean =>
  arrivals.length > FEW_PER_SECOND_MAX && performance.now() - (arrivals[0] ?? 0) < 1_000;

const listeners = new Set<Listener>();
let connection: AbortController | undefined;
let lastId: string | undefined;
/** The database that the last stream was of. */
let database: string | null | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;
let failures = 0;
let openedAt: number | undefined;
let brokenSince: number | undefined;
let waiting: AttemptEvent[] = [];
let flushTimer: ReturnType<typeof setTimeout> | undefined;
let flushedAt = 0;
/** When the newest attempts arrived, one more than a few. */
let arrivals: number[] = [];
/** When an attempt last arrived that was not one of many. */
let calmAt = 0;
let beginning: Beginning = 'start';

/** Follows the attempts until the returned function is called. The first follower opens the connection. */
export function followAttempts(listener: Listener): () => void {
  listeners.add(listener);
  if (connection === undefined && timer === undefined) connect();
  return () => {
    listeners.delete(listener);
    // The next screen usually follows at once.
    setTimeout(() => {
      if (listeners.size === 0) close('off');
    });
  };
}

/** Watches the tab, the network and the session. Called once. */
export function watchPage(): void {
  document.addEventListener('visibilitychange', () => (document.hidden ? close('hidden') : reconnect()));
  addEventListener('pagehide', () => close('hidden'));
  addEventListener('pageshow', () => reconnect());
  addEventListener('online', () => reconnect());
  // A service that answers again has streams again.
  let hadProblem = false;
  effect(() => {
    const hasProblem = serviceProblem.value !== undefined || unreachableSince.value !== undefined;
    if (hadProblem && !hasProblem) reconnect();
    hadProblem = hasProblem;
  });
  let former = scope.peek();
  effect(() => {
    if (scope.value === former) return;
    former = scope.value;
    lastId = undefined;
    close('off');
    reconnect();
  });
}

function reconnect(): void {
  if (listeners.size === 0 || document.hidden || connection !== undefined) return;
  clearTimeout(timer);
  connect();
}

function close(kind: 'off' | 'hidden'): void {
  connection?.abort();
  connection = undefined;
  clearTimeout(timer);
  timer = undefined;
  clearTimeout(flushTimer);
  flushTimer = undefined;
  if (kind === 'off') {
    lastId = undefined;
    beginning = 'start';
  }
  // The stream resumes after these.
  if (kind === 'hidden') hand(waiting.length);
  waiting = [];
  failures = 0;
  openedAt = undefined;
  brokenSince = undefined;
  streamState.value = { kind };
}

function connect(): void {
  timer = undefined;
  if (session.peek().kind === 'visitor') return;
  if (document.hidden) {
    streamState.value = { kind: 'hidden' };
    return;
  }
  const own = new AbortController();
  connection = own;
  if (brokenSince === undefined) streamState.value = { kind: 'connecting' };
  read(own).then(
    () => end(own, undefined),
    (error: unknown) => end(own, error),
  );
}

async function read(own: AbortController): Promise<void> {
  const response = await send(
    'GET /api/notifications/attempts/stream',
    { signal: own.signal, headers: lastId === undefined ? {} : { 'last-event-id': lastId } },
    null,
  );
  if (response.body === null) return;
  if (!/^text\/event-stream\b/.test(response.headers.get('content-type') ?? ''))
    throw new ApiError(0, texts.errors.notJson);
  const former = database;
  database = response.headers.get('chainbell-database');
  // Ids of another database mean nothing here.
  if (former !== undefined && former !== database) {
    if (lastId !== undefined) return skip('replaced');
    beginning = 'replaced';
  }
  streamState.value = { kind: 'live' };
  openedAt = performance.now();
  brokenSince = undefined;
  const connectedAt = serverNow();
  let missed = 0;
  if (lastId === undefined) {
    for (const listener of [...listeners]) listener.onFresh(beginning);
    beginning = 'start';
  }
  const readEvents = createEventReader();
  let silence = setTimeout(() => own.abort(), SILENCE_MS_MAX);
  try {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(silence);
      silence = setTimeout(() => own.abort(), SILENCE_MS_MAX);
      for (const event of readEvents(value)) {
        if (event.type !== 'attempt') continue;
        const { notification, ...attempt } = JSON.parse(event.data) as EventData;
        // Not before: an event that was damaged on its way is asked for again.
        lastId = event.id ?? lastId;
        failures = 0;
        // Retention has deleted it.
        if (notification === null) continue;
        const isMissed = Date.parse(attempt.started_at) + attempt.duration_ms < connectedAt;
        if (isMissed) missed += 1;
        if (missed > MISSED_MAX) return skip('missed');
        waiting.push({ ...attempt, notification });
        arrivals = [...arrivals.slice(-FEW_PER_SECOND_MAX), performance.now()];
        if (!areMany()) calmAt = performance.now();
      }
      if (waiting.length > 0) planFlush();
    }
  } finally {
    clearTimeout(silence);
  }
}

/** The next connection begins with new attempts only. */
function skip(why: Beginning): void {
  lastId = undefined;
  failures = 0;
  waiting = [];
  beginning = why;
}

function end(own: AbortController, error: unknown): void {
  // A stream that was left before its end still has its connection.
  own.abort();
  if (connection !== own) return;
  connection = undefined;
  if (listeners.size === 0) return;
  if (error instanceof ApiError && error.status === 401) return;
  // The watcher that the operator has chosen was deleted elsewhere.
  if (error instanceof ApiError && error.status === 404 && chosenWatcher() !== undefined) {
    announce(error.message);
    chooseWatcher(undefined);
    return;
  }
  // The database was replaced or restored, and has no such event.
  if (error instanceof ApiError && error.status === 400 && lastId !== undefined) skip('replaced');
  if (openedAt !== undefined && performance.now() - openedAt > STEADY_MS) failures = 0;
  openedAt = undefined;
  failures += 1;
  // A stream ends after an hour, and begins again at once. One that ends soon each time is broken.
  const usual = error === undefined && failures === 1;
  const waitMs = usual
    ? 0
    : Math.min(1_000 * 2 ** (failures - 1), BACK_OFF_MS_MAX) * (0.75 + Math.random() / 2);
  if (!usual) {
    brokenSince ??= serverNow();
    const isRefused = error instanceof ApiError && error.status === 429;
    streamState.value = { kind: 'broken', since: brokenSince, retryAt: serverNow() + waitMs, isRefused };
  }
  timer = setTimeout(connect, waitMs);
}

/** At once after a pause, otherwise in batches. */
function planFlush(): void {
  if (flushTimer !== undefined) return;
  const batchMs = areMany() ? BATCH_MS.many : BATCH_MS.few;
  flushTimer = setTimeout(
    () => {
      flushedAt = performance.now();
      handPortions();
    },
    Math.max(0, flushedAt + batchMs - performance.now()),
  );
}

/** Hands the waiting attempts to the listeners, a quarter at once if they are very many. */
function handPortions(): void {
  hand(Math.max(PORTION, Math.ceil(waiting.length / 4)));
  if (waiting.length > 0) flushTimer = setTimeout(handPortions, PORTION_MS);
}

function hand(count: number): void {
  clearTimeout(flushTimer);
  flushTimer = undefined;
  const attempts = waiting.slice(0, count);
  waiting = waiting.slice(count);
  if (attempts.length > 0) for (const listener of [...listeners]) listener.onAttempts(attempts);
}
