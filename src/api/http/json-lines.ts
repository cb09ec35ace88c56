/**
 * A body of one JSON value a line (NDJSON), in groups of lines: what is held does not depend on how long the body is.
 */

/** The one content type whose body is not read as a whole. */
export const LINES_TYPE = 'application/x-ndjson';
/** A record with a URL of 2,048 characters is below 3 KiB. */
export const LINE_CHARACTERS_MAX = 8 * 1024;
/** One transaction, of some ten milliseconds, and one piece of the answer. */
export const GROUP_LINES_MAX = 1_000;

/** A line; undefined for one that is longer than LINE_CHARACTERS_MAX. */
export type Line = string | undefined;

/**
 * The lines that are not empty, in groups of GROUP_LINES_MAX but for the last one: the same groups for the same body,
 * however it arrives. Nothing is read before it is asked for.
 */
export async function* readLineGroups(
  body: AsyncIterable<Uint8Array>,
): AsyncGenerator<{ lines: Line[]; isLast: boolean }> {
  const pending: Line[] = [];
  for await (const lines of readLines(body)) {
    pending.push(...lines);
    // With one line more, because only then it is known that the group is not the last.
    while (pending.length > GROUP_LINES_MAX)
      yield { lines: pending.splice(0, GROUP_LINES_MAX), isLast: false };
  }
  yield { lines: pending, isLast: true };
}

async function* readLines(body: AsyncIterable<Uint8Array>): AsyncGenerator<Line[]> {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const chunk of body) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split('\n');
    // Of a line that is too long no more is kept than shows it.
    rest = lines.pop()?.slice(0, LINE_CHARACTERS_MAX + 1) ?? '';
    yield lines.filter(isFilled).map(limited);
  }
  yield [rest + decoder.decode()].filter(isFilled).map(limited);
}

/** The bytes that make no line: one of them alone is as good as none. */
export const isBlank = (byte: number): boolean => byte === 0x20 || (byte >= 0x09 && byte <= 0x0d);
const isFilled = (line: string) => /[^\t-\r ]/.test(line);
const limited = (line: string): Line => (line.length > LINE_CHARACTERS_MAX ? undefined : line);
