/**
 * A body of lines that is read as it comes, for as long as lines come.
 */
import type { Readable } from 'node:stream';
import type { Clock } from '../core/clock.ts';

const LINE_END = 0x0a;

/**
 * The body's pieces; rejects (408) when no line ends within `silenceMs` of waiting for one, however many bytes come. Only
 * the time spent waiting counts. Once `isSilent` is true, don't wait for the rest of the body.
 */
export function untilSilent(
  body: Readable,
  { clock, silenceMs }: { clock: Clock; silenceMs: number },
): { body: AsyncIterable<Uint8Array>; isSilent(): boolean } {
  let isSilent = false;
  /** How long the end of the present line was waited for. */
  let waitedMs = 0;

  async function* read(): AsyncGenerator<Uint8Array> {
    const pieces: AsyncIterator<Uint8Array> = body.iterator({ destroyOnReturn: false });
    try {
      for (;;) {
        const piece = await nextWithin(pieces);
        if (piece.done === true) return;
        yield piece.value;
      }
    } finally {
      // In silence there is a piece under way, after which it would wait.
      if (!isSilent) await pieces.return?.();
    }
  }

  async function nextWithin(pieces: AsyncIterator<Uint8Array>): Promise<IteratorResult<Uint8Array>> {
    const waiting = new AbortController();
    const startMs = clock.steadyMs();
    try {
      const restMs = Math.max(0, silenceMs - waitedMs);
      const piece = await Promise.race([pieces.next(), clock.wait(restMs, waiting.signal)]);
      if (piece !== undefined) {
        waitedMs =
          piece.done !== true && piece.value.includes(LINE_END) ? 0 : waitedMs + clock.steadyMs() - startMs;
        return piece;
      }
    } finally {
      waiting.abort();
    }
    isSilent = true;
    const message = `Request Timeout: no line came for ${silenceMs / 1000} s`;
    throw Object.assign(new Error(message), { statusCode: 408 });
  }

  return { body: read(), isSilent: () => isSilent };
}
