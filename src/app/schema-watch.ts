/**
 * Ends a process of an older version when a newer one has changed the database in a way that it can't work with.
 */
import { Fault } from '../core/fault.ts';
import type { Step } from '../core/loop.ts';
import type { Database } from '../store/db/db.ts';
import { migrationState } from '../store/db/migrate.ts';
import type { Loops } from './background-loops.ts';

export type SchemaWatch = {
  /** Run it every SCHEMA_MS. */
  step: Step;
  /** Why the process really ends: a statement may fail because of the new schema before `step` notices it. */
  explain(bug: Error): Promise<Error>;
};

/** As often as heartbeats. */
export const SCHEMA_MS = 2_000;

export function createSchemaWatch(
  database: Database,
  { loops, migrations }: { loops: Pick<Loops, 'fail'>; migrations: URL | undefined },
): SchemaWatch {
  async function findConflict(): Promise<Fault | undefined> {
    try {
      await migrationState(database, migrations);
      return undefined;
    } catch (error) {
      if (error instanceof Fault && error.code === 'conflict') return error;
      throw error;
    }
  }

  return {
    async step() {
      const conflict = await findConflict();
      if (conflict !== undefined) loops.fail(conflict);
      return 'idle';
    },
    async explain(bug) {
      if (bug instanceof Fault) return bug;
      try {
        return (await findConflict()) ?? bug;
      } catch {
        return bug;
      }
    },
  };
}
