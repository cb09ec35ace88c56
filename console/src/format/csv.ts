/**
 * Reads the lines of a CSV of watched addresses, and writes those that were refused as a report that can be imported again.
 */
import { importTexts } from '../import-texts.ts';
import { texts } from '../texts.ts';

/** `cells` are those of the file, without the columns that a report adds. */
type Line = { line: number; text: string; cells: readonly string[] };
export type ImportLine = Line & { body: Record<string, unknown> };
export type RefusedLine = Line & { message: string; isSkipped?: true };

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
  /** The number of the line that watches this. */
  const known = new Map<string, number>();
  let columns: readonly string[] = COLUMNS;
  let added: readonly number[] = [];
  text.split(/\r\n|\r|\n/).forEach((raw, index) => {
    const isComment = /^\s*#/.test(raw);
    // Nothing, a comment without an address, or how a spreadsheet names the separator.
    if (/^\s*($|sep=.$)/i.test(raw) || (isComment && !/[0-9a-f]{40}/i.test(raw))) return;
    const all = cellsOf(raw.replace(/^\s*#+\s*/, ''));
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
    if (isComment) {
      problems.push({ ...line, message: importTexts.skipped, isSkipped: true });
      return;
    }
    const body = readCells(cells, { columns, defaultUrl, hasQuotes: raw.includes('"') });
    if (typeof body === 'string') {
      problems.push({ ...line, message: body });
      return;
    }
    const watches = watchesOf(body);
    const former = watches.map((one) => known.get(one)).find((one) => one !== undefined);
    if (former !== undefined) {
      problems.push({ ...line, message: importTexts.repeated(former), isSkipped: true });
      return;
    }
    for (const one of watches) known.set(one, line.line);
    lines.push({ ...line, body });
  });
  return { lines, problems, columns };
}

type Body = { address: string; webhook_url: string; watch_coin?: boolean; watch_token?: boolean };

/** What the line watches: coins, tokens or both of an address for a URL. */
function watchesOf({
  address,
  webhook_url: url,
  watch_coin: coin = true,
  watch_token: token = true,
}: Body): string[] {
  const place = `${address.toLowerCase().replace(/^0x/, '')} ${URL.canParse(url) ? new URL(url).href : url}`;
  return [...(coin ? [`${place} coin`] : []), ...(token ? [`${place} token`] : [])];
}

/** The body of a request, or why there is none. */
function readCells(
  cells: readonly string[],
  file: { columns: readonly string[]; defaultUrl: string; hasQuotes: boolean },
): Body | string {
  const { columns } = file;
  const unknown = columns.find((name) => !COLUMNS.includes(name));
  if (unknown !== undefined) return importTexts.badColumn(unknown);
  const doubled = columns.find((name, place) => columns.indexOf(name) !== place);
  if (doubled !== undefined) return importTexts.doubledColumn(doubled);
  // Of a URL with a separator that isn't in quotes, the rest would pass for a flag.
  const isPlain = columns === COLUMNS && !file.hasQuotes;
  const isCut = isPlain && cells[1]?.includes('?') === true && /^[01]$/.test(cells[2] ?? '');
  if (isCut || cells.slice(columns.length).some((cell) => cell !== '')) return importTexts.surplus;
  const cellOf = (name: string) => cells[columns.indexOf(name)] ?? '';
  const address = cellOf('address');
  if (!/^(0x)?[0-9a-f]{40}$/i.test(address)) return texts.filters.badAddress;
  const url = cellOf('webhook_url') === '' ? file.defaultUrl : cellOf('webhook_url');
  if (url === '') return importTexts.noUrl;
  const given = ['watch_coin', 'watch_token'].filter((name) => cellOf(name) !== '');
  const wrong = given.find((name) => !FLAG.test(cellOf(name)));
  if (wrong !== undefined) return importTexts.badFlag(wrong, cellOf(wrong));
  const flags = given.map((name) => [name, /^(true|1|yes)$/i.test(cellOf(name))]);
  return { address, webhook_url: url, ...Object.fromEntries(flags) };
}

/**
 * Refused lines with their cells as the file has them. An import of the report ignores the added columns. Lines that repeat another
 * one are comments here, because the other one isn't in the report.
 */
export function reportOf(refused: readonly RefusedLine[], columns: readonly string[]): string {
  const rows = refused.map(({ line, cells, message, isSkipped }) => [
    isSkipped === true ? `# ${line}` : String(line),
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
  // A separator before the first cell too, because an empty match would step over the next one.
  return Array.from(
    `,${line}`.matchAll(/[,;\t](?: *"((?:[^"]|"")*)" *(?=[,;\t]|$)|([^,;\t]*))/g),
    ([, quoted, plain]) =>
      quoted === undefined ? (plain ?? '').trim() : quoted.replaceAll('""', '"').trim(),
  );
}
