/**
 * Reads the lines of a CSV of watched addresses, and writes those that were refused as a report that can be imported again.
 */
import { importTexts } from '../import-texts.ts';
import { texts } from '../texts.ts';

/** `cells` are those of the file, without the columns that a report adds. */
type Line = { line: number; text: string; cells: readonly string[] };
export type ImportLine = Line & { body: Record<string, unknown> };
export type RefusedLine = Line & { message: string; isRepeated?: true };

const COLUMNS: readonly string[] = ['address', 'webhook_url', 'watch_coin', 'watch_token'];
/** What a report adds to each line. */
const REPORT_COLUMNS: readonly string[] = ['line', 'reason'];
const FLAG = /^(true|1|yes|false|0|no)$/i;

/**
 * The lines of a CSV with the columns address, webhook_url, watch_coin and watch_token, in this order or as a line before the
 * others names them. Lines without a URL take `defaultUrl`. Comma, semicolon and tab separate.
 */
export function parseCsv(
  text: string,
  defaultUrl: string,
): { lines: ImportLine[]; problems: RefusedLine[]; columns: readonly string[] } {
  const lines: ImportLine[] = [];
  const problems: RefusedLine[] = [];
  /** The number of the line that watches the same in the same way. */
  const known = new Map<string, number>();
  let columns: readonly string[] = COLUMNS;
  let added: readonly number[] = [];
  text.split(/\r\n|\r|\n/).forEach((raw, index) => {
    // A comment, and how a spreadsheet names the separator.
    if (/^\s*($|#|sep=.$)/i.test(raw)) return;
    const all = cellsOf(raw);
    const names = all.map((cell) => cell.toLowerCase());
    if (lines.length === 0 && names.includes('address')) {
      added = names.flatMap((name, place) => (REPORT_COLUMNS.includes(name) ? [place] : []));
      columns = names.filter((name) => !REPORT_COLUMNS.includes(name));
      // The report of a file that names no columns names all of them.
      if (added.length > 0 && String(columns) === String(COLUMNS)) columns = COLUMNS;
      return;
    }
    const cells = all.filter((_, place) => !added.includes(place));
    const line = { line: index + 1, text: cells[columns.indexOf('address')] ?? '', cells };
    const body = readCells(cells, { columns, defaultUrl, hasQuotes: raw.includes('"') });
    if (typeof body === 'string') {
      problems.push({ ...line, message: body });
      return;
    }
    const same = JSON.stringify({ ...body, address: line.text.toLowerCase().replace(/^0x/, '') });
    const former = known.get(same);
    if (former !== undefined) {
      problems.push({ ...line, message: importTexts.repeated(former), isRepeated: true });
      return;
    }
    known.set(same, line.line);
    lines.push({ ...line, body });
  });
  return { lines, problems, columns };
}

/** The body of a request, or why there is none. */
function readCells(
  cells: readonly string[],
  file: { columns: readonly string[]; defaultUrl: string; hasQuotes: boolean },
): Record<string, unknown> | string {
  const { columns } = file;
  const unknown = columns.find((name) => !COLUMNS.includes(name));
  if (unknown !== undefined) return importTexts.badColumn(unknown);
  // Of a URL with a separator that isn't in quotes, the rest would pass for a flag.
  const isPlain = columns === COLUMNS && !file.hasQuotes;
  const isCut = isPlain && cells[1]?.includes('?') === true && /^[01]$/.test(cells[2] ?? '');
  if (isCut || cells.slice(columns.length).some((cell) => cell !== '')) return importTexts.surplus;
  const cellOf = (name: string) => cells[columns.indexOf(name)] ?? '';
  const address = cellOf('address');
  if (!/^(0x)?[0-9a-fA-F]{40}$/.test(address)) return texts.filters.badAddress;
  const url = cellOf('webhook_url') === '' ? file.defaultUrl : cellOf('webhook_url');
  if (url === '') return importTexts.noUrl;
  const given = ['watch_coin', 'watch_token'].filter((name) => cellOf(name) !== '');
  const wrong = given.find((name) => !FLAG.test(cellOf(name)));
  if (wrong !== undefined) return importTexts.badFlag(wrong, cellOf(wrong));
  const flags = given.map((name) => [name, /^(true|1|yes)$/i.test(cellOf(name))]);
  return { address, webhook_url: url, ...Object.fromEntries(flags) };
}

/**
 * Refused lines with their cells as the file has them. An import of the report ignores the added columns, and lines that repeat
 * another one, which are comments here, because the other one isn't in the report.
 */
export function reportOf(refused: readonly RefusedLine[], columns: readonly string[]): string {
  const rows = refused.map(({ line, cells, message, isRepeated }) => [
    isRepeated === true ? `# ${line}` : String(line),
    message.replaceAll(/\s+/g, ' '),
    ...cells,
  ]);
  return [[...REPORT_COLUMNS, ...columns], ...rows].map((row) => row.map(csvCell).join(',')).join('\n');
}

/** A cell of a CSV. A spreadsheet would run one that begins like a formula, so that gets an apostrophe. */
export function csvCell(text: string): string {
  const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",;\t\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
}

/** A cell in quotes may contain separators, and quotes as two. */
function cellsOf(line: string): string[] {
  if (!line.includes('"')) return line.split(/[,;\t]/).map((cell) => cell.trim());
  return Array.from(
    line.matchAll(/(?:^|[,;\t])(?: *"((?:[^"]|"")*)" *(?=[,;\t]|$)|([^,;\t]*))/g),
    ([, quoted, plain]) =>
      quoted === undefined ? (plain ?? '').trim() : quoted.replaceAll('""', '"').trim(),
  );
}
