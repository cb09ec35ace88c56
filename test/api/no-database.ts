/**
 * For tests of what never asks the database.
 */
import type { Database } from '../../src/store/db/db.ts';

const refuse = () => Promise.reject(new Error('this test has no database'));

export const noDatabase: Database = {
  kind: 'embedded',
  query: refuse,
  each: refuse,
  transaction: refuse,
  script: refuse,
  session: refuse,
  close: refuse,
};
