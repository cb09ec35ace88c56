/**
 * A body that is read as it comes, for as long as something comes.
 */
import type { Readable } from 'node:stream';
import type { Clock } from '../core/clock.ts';

/**
 * The body's pieces; rejects (408) when none comes within `silenceMs` after it was asked for. The time in which nobody asks
 * does not count. `isSilent` says whether it came to that: the rest of such a body is not to be waited for.
 */
export function untilSilent(
  body: Readable,
  { clock, silenceMs }: { clock: Clock; silenceMs: number },
): { body: AsyncIterable<Uint8Array>; isSilent(): boolean } {
  let isSilent = false;

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
    try {
      const piece = await Promise.race([pieces.next(), clock.wait(silenceMs, waiting.signal)]);
      if (piece !== undefined) return piece;
    } finally {
      waiting.abort();
    }
    isSilent = true;
    const message = `Request Timeout: nothing came for ${silenceMs / 1000} s`;
    throw Object.assign(new Error(message), { statusCode: 408 });
  }

  return { body: read(), isSilent: () => isSilent };
}
