/**
 * Reads a body with one JSON value on each line (NDJSON) in groups of lines, so memory doesn't grow with the body.
 */
import { splitLines } from '../../core/lines.ts';

/** The only content type whose body is not read as a whole. */
export const LINES_TYPE = 'application/x-ndjson';
/** A watched address with a URL of 2,048 characters takes less than 3 KiB. */
export const LINE_CHARACTERS_MAX = 8 * 1024;
/** Lines in one transaction, which takes some ten milliseconds, and in one piece of the response. */
export const GROUP_LINES_MAX = 1_000;

/** A line, or undefined if it is longer than LINE_CHARACTERS_MAX. */
export type Line = string | undefined;

/**
 * The lines that are not blank, in groups of GROUP_LINES_MAX, the last one smaller. The same body makes the same groups, however
 * it is cut into chunks. A group is read when the caller requests it.
 */
export async function* readLineGroups(
  body: AsyncIterable<Uint8Array>,
): AsyncGenerator<{ lines: Line[]; isLast: boolean }> {
  const pending: Line[] = [];
  for await (const lines of readLines(body)) {
    pending.push(...lines);
    // Wait for one line more, because only then is it certain that the group is not the last.
    while (pending.length > GROUP_LINES_MAX)
      yield { lines: pending.splice(0, GROUP_LINES_MAX), isLast: false };
  }
  yield { lines: pending, isLast: true };
}

async function* readLines(body: AsyncIterable<Uint8Array>): AsyncGenerator<Line[]> {
  for await (const lines of splitLines(body, LINE_CHARACTERS_MAX)) yield lines.filter(isFilled).map(limited);
}

/** White space in ASCII. A line of nothing else is blank. */
export const isBlank = (byte: number): boolean => byte === 0x20 || (byte >= 0x09 && byte <= 0x0d);
const isFilled = (line: string) => /[^\t-\r ]/.test(line);
const limited = (line: string): Line => (line.length > LINE_CHARACTERS_MAX ? undefined : line);
