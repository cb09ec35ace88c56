/**
 * Plain-text tables.
 */

/** Aligns columns; the first row is the heading. A table without further rows is ''. */
export function table(rows: readonly (readonly string[])[]): string {
  const [first = []] = rows;
  if (rows.length < 2) return '';
  const widths = first.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
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
