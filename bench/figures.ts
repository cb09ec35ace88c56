/**
 * What a scenario of `npm run bench` returns.
 */

/** Rows of a table, one object each; units are in the names. */
export type Figures = {
  conditions: Record<string, string | number>;
  rows: Record<string, string | number>[];
};
