/**
 * Tables for people.
 */

/** Lines with aligned columns; nothing for a heading alone. */
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
