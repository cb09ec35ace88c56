/**
 * Waiting for a condition: what tests do instead of sleeping.
 */
import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 5;
/** Questions of a database or a service take processor time from what they wait for, so a long wait asks less often. */
const POLL_MS_MAX = 50;
const TIMEOUT_MS = 120_000;

/**
 * The first answer of `condition` that is neither undefined nor false; asks one question at a time, every `pollMs`.
 * Unless that is given, it asks every 5 ms at first; a condition that returns a promise is asked every 50 ms after 0.2 s.
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
