/**
 * The server's time, and one timer for the whole page. Countdowns use the server's clock, because the visitor's may be wrong.
 */
import { computed, type ReadonlySignal, signal } from '@preact/signals';

const TICK_MS = 1_000;
/** The `Date` header has whole seconds. */
const DATE_HEADER_MS = 1_000;

const seconds = signal(Date.now());
const local = signal(Date.now());
let offsetMs = 0;
let isKnown = false;

/** The server's time as of the last tick. Reading it renders again each second. */
export const now: ReadonlySignal<number> = seconds;

/** The minute of `now`, for texts that change with the day. */
export const minute: ReadonlySignal<number> = computed(() => Math.floor(seconds.value / 60_000) * 60_000);

/** This machine's time as of the last tick, for the age of data that has arrived. */
export const localNow: ReadonlySignal<number> = local;

/** The server's time at an instant of this machine's clock. */
export const onServer = (at: number): number => at + offsetMs;

/** The server's time right now. */
export const serverNow = (): number => onServer(Date.now());

/** Notes the `Date` header of an answer that the server has just made. */
export function noteServerTime(header: string | null): void {
  const startMs = Date.parse(header ?? '');
  if (Number.isNaN(startMs)) return;
  // The server's time was somewhere in this second. Only a correction that this second rules out is made.
  const least = startMs - Date.now();
  const most = least + DATE_HEADER_MS;
  if (isKnown && offsetMs >= least && offsetMs <= most) return;
  offsetMs = isKnown ? (offsetMs < least ? least : most) : Math.abs(least) < DATE_HEADER_MS ? 0 : least;
  isKnown = true;
  seconds.value = serverNow();
}

function tick(): void {
  if (document.hidden) return;
  local.value = Date.now();
  seconds.value = serverNow();
}
setInterval(tick, TICK_MS);
document.addEventListener('visibilitychange', tick);
