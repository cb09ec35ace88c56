/**
 * A database whose statements wait for the test.
 */
import type { Database } from '../../src/store/db/db.ts';

type SlowDatabase = {
  database: Database;
  /** From now on statements wait, until `resume`. */
  pause(): void;
  resume(): void;
  /** Statements that have waited. */
  waited(): number;
};

/** Only statements outside of transactions wait. */
export function createSlowDatabase(database: Database): SlowDatabase {
  let gate: PromiseWithResolvers<void> | undefined;
  let waited = 0;
  return {
    database: {
      ...database,
      async query(statement) {
        if (gate !== undefined) {
          waited += 1;
          await gate.promise;
        }
        return database.query(statement);
      },
    },
    pause() {
      gate = Promise.withResolvers();
    },
    resume() {
      gate?.resolve();
      gate = undefined;
    },
    waited: () => waited,
  };
}
