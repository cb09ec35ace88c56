/**
 * Markdown tables for the generated parts of the reference.
 */

/** A table with these headings. Undefined cells are empty. */
export function markdownTable(headings: readonly string[], rows: readonly (string | undefined)[][]): string {
  const line = (cells: readonly (string | undefined)[]) => `| ${cells.map(cellOf).join(' | ')} |`;
  return [line(headings), `|${headings.map(() => '---|').join('')}`, ...rows.map(line)].join('\n');
}

/** `|` would end the cell. */
const cellOf = (text = ''): string => text.replaceAll('|', '\\|').replaceAll('\n', ' ');

export const code = (text: string): string => `\`${text}\``;
