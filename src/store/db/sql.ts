/**
 * SQL as a tagged template. Every value becomes a parameter; a nested statement becomes part of the text.
 */

export type Sql = {
  readonly text: string;
  readonly values: readonly unknown[];
  /** Whether a server should keep the statement parsed and planned. Requires connections that don't share server sessions. */
  readonly isFrequent?: boolean;
};

/** `sql\`select … where id = ${id}\``. Undefined becomes null. An array becomes a PostgreSQL array and needs a cast. */
export function sql(strings: TemplateStringsArray, ...parts: readonly unknown[]): Sql {
  let text = strings[0] ?? '';
  const values: unknown[] = [];
  parts.forEach((part, index) => {
    if (isSql(part)) {
      text += part.text.replace(
        /\$(\d+)/g,
        (_match, position: string) => `$${Number(position) + values.length}`,
      );
      values.push(...part.values);
    } else {
      values.push(part === undefined ? null : part);
      text += `$${values.length}`;
    }
    text += strings[index + 1] ?? '';
  });
  return { text, values };
}

const isSql = (part: unknown): part is Sql =>
  typeof part === 'object' && part !== null && 'text' in part && 'values' in part;

/** Text as part of a statement, for names that can't be parameters. Never pass it what a user wrote. */
export const raw = (text: string): Sql => ({ text, values: [] });

/** Marks a statement whose text is always the same and that runs many times a second. */
export const frequent = (statement: Sql): Sql => ({ ...statement, isFrequent: true });
