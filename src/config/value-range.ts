/**
 * Where characters of a value stand in the file: a scalar may be quoted, folded or spread over several lines.
 */
import type { Span } from '../core/text-error.ts';
import type { Range, SourceFile } from './settings.ts';

/**
 * The characters of the file for those of the value at `range`; undefined where the one is not the other but for white
 * space, because of escapes or variables.
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
