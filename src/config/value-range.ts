/**
 * Finds the characters of the file for characters of a value, which may be quoted, folded or on several lines.
 */
import type { Span } from '../core/text-error.ts';
import type { Range, SourceFile } from './value-origins.ts';

/**
 * The file's characters for `span` of the value at `range`. Undefined if file and value differ in more than white space,
 * because of escapes or variables.
 */
export function rangeOfSpan(
  { text }: Pick<SourceFile, 'text'>,
  { value, range, span }: { value: string; range: Range; span: Span },
): Range | undefined {
  const [header = ''] = /^(?:["']|[|>][-+0-9]*[ \t]*(?:#.*)?\r?\n)?/.exec(text.slice(...range)) ?? [];
  const places: number[] = [];
  let at = range[0] + header.length;
  for (const character of value) {
    if (/\s/.test(character)) {
      places.push(at);
      continue;
    }
    while (at < range[1] && /\s/.test(text.charAt(at))) at += 1;
    if (at >= range[1] || !text.startsWith(character, at)) return undefined;
    for (let part = 0; part < character.length; part += 1) places.push(at + part);
    at += character.length;
  }
  const start = places[span.start] ?? at;
  const last = places[span.end - 1];
  return [start, last === undefined || last < start ? start + 1 : last + 1];
}
