/**
 * Reads a body of lines as it arrives, as long as lines keep arriving and the client's key is valid.
 */
import type { Readable } from 'node:stream';
import { never } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import type { Clock } from '../../core/clock.ts';
import { isRefusal } from './auth.ts';
import { isBlank } from './json-lines.ts';

const LINE_END = 0x0a;
/** How long a stream goes on after its key was revoked, while nothing is stored. */
const CHECK_MS = 2_500;

type Patience = {
  clock: Clock;
  silenceMs: number;
  /** Called every CHECK_MS. @throws Fault when the client's key is no longer valid */
  check(): Promise<void>;
};

/**
 * The body's pieces. Rejects with status 408 when no line that is not blank ends within `silenceMs`, counting only the time
 * spent waiting, and with the Fault of `check` when it refuses the key. Once `isOver` is true, don't wait for the rest of the
 * body.
 */
export function untilSilent(
  body: Readable,
  { clock, silenceMs, check }: Patience,
): { body: AsyncIterable<Uint8Array>; isOver(): boolean } {
  let isOver = false;
  /** How long the end of the current line has been waited for. */
  let waitedMs = 0;
  let checkedMs = clock.steadyMs();
  let isBegun = false;

  async function* read(): AsyncGenerator<Uint8Array> {
    const pieces: AsyncIterator<Uint8Array> = body.iterator({ destroyOnReturn: false });
    try {
      for (;;) {
        await checkAgain();
        const next = pieces.next();
        // It may reject after nothing waits for it any more.
        next.catch(() => {});
        const piece = await waitFor(next);
        if (piece.done === true) return;
        if (endsLine(piece.value)) waitedMs = 0;
        yield piece.value;
      }
    } finally {
      // If the time is over, a read is under way, and `return` would wait for its end.
      if (!isOver) await pieces.return?.();
    }
  }

  async function waitFor(next: Promise<IteratorResult<Uint8Array>>): Promise<IteratorResult<Uint8Array>> {
    for (;;) {
      const startMs = clock.steadyMs();
      const restMs = Math.max(0, Math.min(silenceMs - waitedMs, checkedMs + CHECK_MS - startMs));
      const piece = await firstOrLate({ clock, signal: never }, [next], restMs);
      waitedMs += clock.steadyMs() - startMs;
      if (piece !== 'late') return piece;
      await checkAgain();
      if (waitedMs < silenceMs) continue;
      isOver = true;
      const message = `Request Timeout: no line arrived for ${silenceMs / 1000} s`;
      throw Object.assign(new Error(message), { statusCode: 408 });
    }
  }

  /** Errors other than a refusal are ignored: while the key can't be looked up, nothing can be stored either. */
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

  /** Whether a line that is not blank ends in the piece. */
  function endsLine(piece: Uint8Array): boolean {
    const end = piece.lastIndexOf(LINE_END);
    const isEnd = end !== -1 && (isBegun || !piece.subarray(0, end).every(isBlank));
    isBegun = (isBegun && end === -1) || !piece.subarray(end + 1).every(isBlank);
    return isEnd;
  }

  return { body: read(), isOver: () => isOver };
}
