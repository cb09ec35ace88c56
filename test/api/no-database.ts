/**
 * A database that fails, for tests of code that must not use it.
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
