/**
 * The result of a scenario of `npm run bench`.
 */

/** Rows of a table, one object each. The names contain the units. */
export type Figures = {
  conditions: Record<string, string | number>;
  rows: Record<string, string | number>[];
};
