/**
 * A database whose statements are for one account.
 */
import { actFor } from '../../core/account.ts';
import type { Database } from './db.ts';

/** The same database, for this account (core/account.ts). Work that its transactions start is for it too. */
export const actingFor = (account: number, database: Database): Database => ({
  ...database,
  query: (statement) => actFor(account, () => database.query(statement)),
  each: (statement, onRow) => actFor(account, () => database.each(statement, onRow)),
  transaction: (work) => actFor(account, () => database.transaction(work)),
  script: (text) => actFor(account, () => database.script(text)),
});
