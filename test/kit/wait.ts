/**
 * Waiting for a condition: what tests do instead of sleeping.
 */
import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 5;
const TIMEOUT_MS = 60_000;

/**
 * The first answer of `condition` that is neither undefined nor false; asks every `pollMs` (5 ms), one question at a time.
 * @throws Error naming what was waited for, after `timeoutMs` (60 s); what `condition` throws passes through.
 */
export async function waitUntil<T>(
  condition: () => T | undefined | false | Promise<T | undefined | false>,
  options: { timeoutMs?: number; describe?: string; pollMs?: number } = {},
): Promise<T> {
  const { timeoutMs = TIMEOUT_MS, describe = condition.toString(), pollMs = POLL_MS } = options;
  const deadline = performance.now() + timeoutMs;
  for (;;) {
    const answer = await condition();
    if (answer !== undefined && answer !== false) return answer;
    if (performance.now() > deadline) throw new Error(`waited ${timeoutMs} ms in vain for: ${describe}`);
    await delay(pollMs);
  }
}
