/**
 * Reads the lines of a CSV of watched addresses, and writes cells.
 */
import { texts } from '../texts.ts';

export type ImportLine = { line: number; text: string; body: Record<string, unknown> };
export type RefusedLine = { line: number; text: string; message: string };

const COLUMNS: readonly string[] = ['address', 'webhook_url', 'watch_coin', 'watch_token'];
const FLAG = /^(true|1|yes|false|0|no)$/i;

/**
 * The lines of a CSV with the columns address, webhook_url, watch_coin and watch_token, in this order or as a line before the
 * others names them. Lines without a URL take `defaultUrl`. Comma, semicolon and tab separate.
 */
export function parseCsv(text: string, defaultUrl: string): { lines: ImportLine[]; problems: RefusedLine[] } {
  const lines: ImportLine[] = [];
  const problems: RefusedLine[] = [];
  /** The number of the line that watches the same in the same way. */
  const known = new Map<string, number>();
  let columns: readonly string[] = COLUMNS;
  text.split(/\r\n|\r|\n/).forEach((raw, index) => {
    // A comment, and how a spreadsheet names the separator.
    if (/^\s*($|#|sep=.$)/i.test(raw)) return;
    const cells = cellsOf(raw);
    const line = index + 1;
    const names = cells.map((cell) => cell.toLowerCase());
    if (lines.length === 0 && names.includes('address')) {
      columns = names;
      return;
    }
    const unknown = columns.find((name) => !COLUMNS.includes(name));
    if (unknown !== undefined) {
      problems.push({ line, text: cells.join(','), message: texts.import.badColumn(unknown) });
      return;
    }
    const hasSurplus = cells.slice(columns.length).some((cell) => cell !== '');
    // Of a URL with a separator that isn't in quotes, the rest would pass for a flag.
    const isPlain = columns === COLUMNS && !raw.includes('"');
    const isCut = isPlain && cells[1]?.includes('?') === true && /^[01]$/.test(cells[2] ?? '');
    if (hasSurplus || isCut) {
      problems.push({ line, text: cells.join(','), message: texts.import.surplus });
      return;
    }
    const cellOf = (name: string) => cells[columns.indexOf(name)] ?? '';
    const address = cellOf('address');
    const url = cellOf('webhook_url') === '' ? defaultUrl : cellOf('webhook_url');
    if (!/^(0x)?[0-9a-fA-F]{40}$/.test(address))
      problems.push({ line, text: address, message: texts.filters.badAddress });
    else if (url === '') problems.push({ line, text: address, message: texts.import.noUrl });
    else {
      const given = ['watch_coin', 'watch_token'].filter((name) => cellOf(name) !== '');
      const wrong = given.find((name) => !FLAG.test(cellOf(name)));
      if (wrong !== undefined) {
        problems.push({ line, text: address, message: texts.import.badFlag(wrong, cellOf(wrong)) });
        return;
      }
      const flags = Object.fromEntries(given.map((name) => [name, /^(true|1|yes)$/i.test(cellOf(name))]));
      const body = { address, webhook_url: url, ...flags };
      const same = JSON.stringify({ ...body, address: address.toLowerCase().replace(/^0x/, '') });
      const former = known.get(same);
      if (former !== undefined) {
        problems.push({ line, text: address, message: texts.import.repeated(former) });
        return;
      }
      known.set(same, line);
      lines.push({ line, text: address, body });
    }
  });
  return { lines, problems };
}

/** A cell of a CSV. A spreadsheet would run one that begins like a formula, so that gets an apostrophe. */
export function csvCell(text: string): string {
  const plain = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
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
