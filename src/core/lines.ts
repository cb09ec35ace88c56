/**
 * Splits a stream of bytes into lines of UTF-8 text, in memory that doesn't depend on the length of a line.
 */

/**
 * Yields the lines that each chunk completes, and the last line at the end. Keeps at most `charactersMax` + 1 characters
 * of an incomplete line between chunks, which is enough for the caller to detect that it is too long.
 */
export async function* splitLines(
  input: AsyncIterable<Uint8Array>,
  charactersMax: number,
): AsyncGenerator<string[]> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of input) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    rest = lines.pop()?.slice(0, charactersMax + 1) ?? '';
    yield lines;
  }
  yield [rest + decoder.decode()];
}
