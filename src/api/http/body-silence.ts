/**
 * A body of lines that is read as it comes, for as long as lines come and its sender may send them.
 */
import type { Readable } from 'node:stream';
import type { Clock } from '../../core/clock.ts';
import { isRefusal } from './auth.ts';
import { isBlank } from './json-lines.ts';

const LINE_END = 0x0a;
/** How long a stream outlives its key while nothing is stored. */
const CHECK_MS = 2_500;

type Patience = {
  clock: Clock;
  silenceMs: number;
  /** Whether the sender's key is still valid: asked every CHECK_MS. @throws Fault */
  check(): Promise<void>;
};

/**
 * The body's pieces; rejects (408) when no line ends within `silenceMs` of waiting for one, however many bytes and empty lines
 * come, and with the refusal of the key. Only the time spent waiting counts. Once `isOver` is true, don't wait for the rest of
 * the body.
 */
export function untilSilent(
  body: Readable,
  { clock, silenceMs, check }: Patience,
): { body: AsyncIterable<Uint8Array>; isOver(): boolean } {
  let isOver = false;
  /** How long the end of the present line was waited for. */
  let waitedMs = 0;
  let checkedMs = clock.steadyMs();
  let isBegun = false;

  async function* read(): AsyncGenerator<Uint8Array> {
    const pieces: AsyncIterator<Uint8Array> = body.iterator({ destroyOnReturn: false });
    try {
      for (;;) {
        await checkAgain();
        const next = pieces.next();
        // It may reject when nothing waits for it any more.
        next.catch(() => {});
        const piece = await waitFor(next);
        if (piece.done === true) return;
        if (endsLine(piece.value)) waitedMs = 0;
        yield piece.value;
      }
    } finally {
      // Then there is a piece under way, after which it would wait.
      if (!isOver) await pieces.return?.();
    }
  }

  async function waitFor(next: Promise<IteratorResult<Uint8Array>>): Promise<IteratorResult<Uint8Array>> {
    for (;;) {
      const waiting = new AbortController();
      const startMs = clock.steadyMs();
      const restMs = Math.max(0, Math.min(silenceMs - waitedMs, checkedMs + CHECK_MS - startMs));
      try {
        const piece = await Promise.race([next, clock.wait(restMs, waiting.signal)]);
        waitedMs += clock.steadyMs() - startMs;
        if (piece !== undefined) return piece;
      } finally {
        waiting.abort();
      }
      await checkAgain();
      if (waitedMs < silenceMs) continue;
      isOver = true;
      const message = `Request Timeout: no line came for ${silenceMs / 1000} s`;
      throw Object.assign(new Error(message), { statusCode: 408 });
    }
  }

  /** While the key can't be looked up, nothing is stored either. */
  async function checkAgain(): Promise<void> {
    if (clock.steadyMs() - checkedMs < CHECK_MS) return;
    checkedMs = clock.steadyMs();
    try {
      await check();
    } catch (error) {
      if (!isRefusal(error)) return;
      isOver = true;
      throw error;
    }
  }

  /** Whether a line that is not empty ends in the piece. */
  function endsLine(piece: Uint8Array): boolean {
    const end = piece.lastIndexOf(LINE_END);
    const isEnd = end !== -1 && (isBegun || !piece.subarray(0, end).every(isBlank));
    isBegun = (isBegun && end === -1) || !piece.subarray(end + 1).every(isBlank);
    return isEnd;
  }

  return { body: read(), isOver: () => isOver };
}
