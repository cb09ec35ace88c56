/**
 * Reads awards from a file: NDJSON, or CSV with a header row. The first character decides which. Memory use does not
 * depend on the length of the file.
 */
import { pipeline, Readable } from 'node:stream';
import { CsvError, type Parser, parse as parseCsv } from 'csv-parse';
import { Fault, messageOf, orFault } from '../core/fault.ts';
import { splitLines } from '../core/lines.ts';
import type { Award } from '../domain/award.ts';
import { type AwardLine, awardFields, parseAwardLine } from '../domain/award-line.ts';

/** `line` counts from 1. A CSV record that spans several lines has the number of its last line. */
export type ReadLine = { line: number; award: Award | Fault };

const LINE_CHARACTERS_MAX = 8 * 1024;
const NO_OBJECT = 'is not a JSON object: write each award as one object on one line';
const REQUIRED = ['user', 'category', 'points', 'hash'] as const;

/** Yields every line that is not blank. Stops after a CSV error that hides where the next record begins. */
export async function* readAwards(input: AsyncIterable<Uint8Array>): AsyncGenerator<ReadLine> {
  const chunks = input[Symbol.asyncIterator]();
  const read: Uint8Array[] = [];
  const decoder = new TextDecoder();
  let start: string | undefined;
  while (start === undefined) {
    const { done, value } = await chunks.next();
    if (done === true) return;
    read.push(value);
    start = /[^\s\uFEFF]/.exec(decoder.decode(value, { stream: true }))?.[0];
  }
  async function* all() {
    yield* read;
    yield* { [Symbol.asyncIterator]: () => chunks };
  }
  yield* /[{[]/.test(start) ? readJsonLines(all()) : readCsv(all());
}

async function* readJsonLines(input: AsyncIterable<Uint8Array>): AsyncGenerator<ReadLine> {
  let line = 0;
  for await (const lines of splitLines(input, LINE_CHARACTERS_MAX))
    for (const text of lines) {
      line += 1;
      if (text.trim() === '') continue;
      yield { line, award: orFault(() => parseAwardLine(parseJson(text))) };
    }
}

/** Keeps numbers as they are written, because a double would round them. */
function parseJson(text: string): AwardLine {
  if (text.length > LINE_CHARACTERS_MAX)
    throw new Fault('invalid', `is longer than ${LINE_CHARACTERS_MAX} characters`);
  if (text.trimStart().startsWith('[')) throw new Fault('invalid', NO_OBJECT);
  let value: unknown;
  try {
    value = JSON.parse(text, sourceOfNumbers as (key: string, value: unknown) => unknown);
  } catch (error) {
    throw new Fault('invalid', `is not JSON: ${messageOf(error)}`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new Fault('invalid', NO_OBJECT);
  const given = Object.entries(value).filter(([, one]) => one !== null);
  requireKnown(given.map(([name]) => name));
  for (const [path, one] of given)
    if (typeof one !== 'string')
      throw new Fault('invalid', 'is not an award', {
        problems: [{ path, message: 'must be a string or a number' }],
      });
  return Object.fromEntries(given);
}

const sourceOfNumbers = (_key: string, value: unknown, { source }: { source?: string }) =>
  typeof value === 'number' ? source : value;

async function* readCsv(input: AsyncIterable<Uint8Array>): AsyncGenerator<ReadLine> {
  const parser = parseCsv({
    bom: true,
    info: true,
    max_record_size: LINE_CHARACTERS_MAX,
    relax_column_count: true,
    skip_empty_lines: true,
    trim: true,
  });
  // An error in the input or in the parser reaches the loop below through the parser.
  pipeline(Readable.from(input), parser, () => {});
  let header: string[] | undefined;
  try {
    for await (const { record, info } of recordsOf(parser)) {
      const names = header;
      if (names === undefined) header = requireHeader(record);
      else yield { line: info.lines, award: orFault(() => parseAwardLine(withNames(names, record))) };
    }
  } catch (error) {
    if (error instanceof Fault) yield { line: 1, award: error };
    else if (error instanceof CsvError)
      yield { line: parser.info.lines, award: new Fault('invalid', `is not CSV: ${error.message}`) };
    else throw error;
  }
}

type CsvRecord = { record: string[]; info: { lines: number } };

/** Also yields the records before a CSV error, which a failing stream would discard. */
async function* recordsOf(parser: Parser): AsyncGenerator<CsvRecord> {
  const records: AsyncIterable<CsvRecord> = parser;
  try {
    yield* records;
  } catch (error) {
    for (let left: CsvRecord | null = parser.read(); left !== null; left = parser.read()) yield left;
    throw error;
  }
}

function requireHeader(names: string[]): string[] {
  if (names.some((name) => /[\p{Cc}\uFFFD]/u.test(name)))
    throw new Fault('invalid', 'is not UTF-8 text: export the file as CSV in UTF-8, or as NDJSON');
  requireKnown(names);
  const missing = [
    ...REQUIRED.filter((name) => !names.includes(name)),
    ...(names.includes('month') || names.includes('created_at') ? [] : ['created_at']),
  ];
  if (missing.length > 0) throw new Fault('invalid', `the header lacks ${missing.join(', ')}`);
  if (new Set(names).size < names.length) throw new Fault('invalid', 'the header has the same column twice');
  return names;
}

function requireKnown(names: readonly string[]): void {
  const unknown = names.filter((name) => !awardFields.some((field) => field === name));
  if (unknown.length > 0)
    throw new Fault(
      'invalid',
      `has unknown fields: ${unknown.join(', ')}. The fields are ${awardFields.join(', ')}`,
    );
}

function withNames(names: readonly string[], values: readonly string[]): AwardLine {
  if (values.length !== names.length)
    throw new Fault('invalid', `has ${values.length} values, but the header has ${names.length} columns`);
  return Object.fromEntries(names.map((name, index) => [name, values[index]]));
}
