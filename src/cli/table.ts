/**
 * Plain-text tables.
 */
import { printable } from '../core/terminal-text.ts';

/** Aligns columns; the first row is the heading. A table without further rows is ''. */
export function table(unsafe: readonly (readonly string[])[]): string {
  const rows = unsafe.map((row) => row.map(printable));
  const [first = []] = rows;
  if (rows.length < 2) return '';
  const widths = first.map((_, column) =>
    rows.reduce((width, row) => Math.max(width, row[column]?.length ?? 0), 0),
  );
  return rows
    .map(
      (row) =>
        `${row
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('');
}
