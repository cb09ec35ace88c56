/**
 * `chainbell migrate [--check]`: brings the schema up to date, or reports whether it is. `chainbell migrate --from-embedded` moves
 * everything from the embedded database to a server. `chainbell migrate --citus` distributes the delivery tables.
 */
import type { Command } from 'commander';
import type { Config } from '../config/schema.ts';
import { machineSteadyMs } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import { areTablesDistributed, distributeTables } from '../store/db/citus.ts';
import { databasePlace, openForCommand, requireDatabase } from '../store/db/command-database.ts';
import type { Database } from '../store/db/db.ts';
import { type MigrationState, migrate, migrationState } from '../store/db/migrate.ts';
import { requireNoOpenMove } from '../store/db/moved.ts';
import { exitCodes, withConfig } from './exit.ts';
import { endingWhenInterrupted } from './interrupt.ts';
import { KILLED_REMARK, seeProcesses, shownProcess } from './see-processes.ts';

type Flags = { config?: string; check?: boolean; fromEmbedded?: boolean; citus?: boolean; json?: boolean };

const PROGRESS_MS = 2_000;

export function addMigrateCommand(program: Command): void {
  program
    .command('migrate')
    .description('bring the database schema up to date (start does this too)')
    .option('--config <file>', 'configuration file (default: chainbell.yaml if it exists)')
    .option('--check', 'change nothing; exit code 75 if migrations are pending, 78 if a move is not complete')
    .option(
      '--from-embedded',
      'copy the embedded database in dataDir to the empty database at database.url; stop the service first',
    )
    .option(
      '--citus',
      'also distribute the delivery tables over the workers of the Citus cluster at database.url; stop the service first',
    )
    .option('--json', 'print JSON to standard output')
    .action((flags: Flags, command: Command) => {
      const exclusive = [flags.check, flags.fromEmbedded, flags.citus].filter((flag) => flag === true);
      if (exclusive.length > 1)
        command.error('error: --check, --from-embedded and --citus exclude each other');
      return withConfig(flags, (config) =>
        flags.fromEmbedded === true
          ? endingWhenInterrupted(COMPLETE_MOVE, () => move(flags, config))
          : run(flags, config),
      );
    });
}

const COMPLETE_MOVE = 'Run the same command again: it completes the move, or says that it is complete';

async function move(flags: Flags, config: Config): Promise<void> {
  const { moveDatabase } = await import('../app/move-database.ts');
  let printedMs = machineSteadyMs();
  const outcome = await moveDatabase(config, ({ table, copied, rows }) => {
    if (machineSteadyMs() - printedMs < PROGRESS_MS) return;
    printedMs = machineSteadyMs();
    process.stderr.write(`${table}: ${copied} of ${rows} rows\n`);
  });
  if ('completedAt' in outcome) {
    const at = outcome.completedAt.toISOString();
    if (flags.json === true) process.stdout.write(`${JSON.stringify({ completed_at: at })}\n`);
    else
      process.stderr.write(
        `nothing to do: this embedded database moved to the one at database.url at ${at}. Start the service with the same database.url and secret\n`,
      );
    return;
  }
  const counts = outcome.rows;
  const total = [...counts.values()].reduce((sum, count) => sum + count, 0);
  if (flags.json === true)
    process.stdout.write(`${JSON.stringify({ rows: total, tables: Object.fromEntries(counts) })}\n`);
  else
    process.stderr.write(
      `copied ${total} rows. Start the service with the same database.url and secret: it continues where it stopped\n`,
    );
}

async function run(flags: Flags, config: Config): Promise<void> {
  const place = databasePlace(config);
  if (flags.check === true) requireDatabase(place);
  const database = await openForCommand(place);
  try {
    const done = flags.check === true ? [] : await migrate(database);
    const state = await migrationState(database);
    if (flags.check === true && state.applied > 0) await requireNoOpenMove(database);
    const isDistributed = flags.citus === true ? await distribute(database) : undefined;
    report(flags, { ...state, isDistributed }, done);
    if (state.pending.length > 0) process.exitCode = exitCodes.tryAgain;
  } finally {
    await database.close();
  }
}

/** @throws Fault `conflict` while the service runs: its statements are those for tables that aren't distributed. */
async function distribute(database: Database): Promise<boolean> {
  const running = (await seeProcesses(database)).filter(({ state }) => state === 'running');
  if (running.length > 0 && !(await areTablesDistributed(database))) {
    throw new Fault(
      'conflict',
      `the service runs: ${running.map(shownProcess).join('; ')}. Stop it, and run this command again. ${KILLED_REMARK}`,
    );
  }
  return distributeTables(database);
}

/** `isDistributed`: whether this call has distributed the tables; undefined if it was not to. */
type Report = Pick<MigrationState, 'applied' | 'pending'> & { isDistributed: boolean | undefined };

function report(flags: Flags, { applied, pending, isDistributed }: Report, done: readonly string[]): void {
  if (flags.json === true) {
    const distributed = isDistributed === undefined ? {} : { distributed_now: isDistributed };
    process.stdout.write(`${JSON.stringify({ applied, pending, applied_now: done, ...distributed })}\n`);
    return;
  }
  for (const name of done) process.stderr.write(`applied ${name}\n`);
  for (const name of pending) process.stderr.write(`pending ${name}: run chainbell migrate\n`);
  if (pending.length === 0) process.stderr.write(`the schema is up to date at migration ${applied}\n`);
  if (isDistributed !== undefined)
    process.stderr.write(
      isDistributed
        ? 'the delivery tables are distributed over the workers\n'
        : 'nothing to distribute: the delivery tables are distributed already\n',
    );
}
