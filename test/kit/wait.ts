/**
 * Waits for a condition. Tests use this and never sleep.
 */
import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 5;
/** Polling a database or a service takes processor time from it, so a long wait polls less often. */
const POLL_MS_MAX = 50;
const TIMEOUT_MS = 120_000;

/**
 * Returns the first result of `condition` that is neither undefined nor false. Calls it once at a time, every `pollMs`. By
 * default that is every 5 ms; for a condition that returns a promise, it becomes every 50 ms after 0.2 s.
 * @throws Error naming what was waited for, after `timeoutMs` (two minutes); what `condition` throws passes through.
 */
export async function waitUntil<T>(
  condition: () => T | undefined | false | Promise<T | undefined | false>,
  options: { timeoutMs?: number; describe?: string; pollMs?: number } = {},
): Promise<T> {
  const { timeoutMs = TIMEOUT_MS, describe = condition.toString(), pollMs } = options;
  const startedAt = performance.now();
  for (;;) {
    const asked = condition();
    const answer = await asked;
    if (answer !== undefined && answer !== false) return answer;
    const waitedMs = performance.now() - startedAt;
    if (waitedMs > timeoutMs) throw new Error(`waited ${timeoutMs} ms in vain for: ${describe}`);
    const growing = asked instanceof Promise ? Math.min(waitedMs / 4, POLL_MS_MAX) : 0;
    await delay(pollMs ?? Math.max(growing, POLL_MS));
  }
}
