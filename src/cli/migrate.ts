/**
 * `chainbell migrate [--check]`: brings the schema up to date, or reports whether it is.
 */
import type { Command } from 'commander';
import { openForCommand } from '../store/db/command-database.ts';
import { type MigrationState, migrate, migrationState } from '../store/db/migrate.ts';
import { exitCodes, withConfig } from './exit.ts';

type Flags = { config?: string; check?: boolean; json?: boolean };

export function addMigrateCommand(program: Command): void {
  program
    .command('migrate')
    .description('bring the database schema up to date (start does this too)')
    .option('--config <file>', 'configuration file (default: chainbell.yaml if it exists)')
    .option('--check', 'change nothing; exit code 75 if migrations are pending')
    .option('--json', 'print JSON to standard output')
    .action((flags: Flags) => withConfig(flags, (config) => run(flags, config)));
}

async function run(flags: Flags, config: { database: { url: string }; dataDir: string }): Promise<void> {
  const database = await openForCommand({ url: config.database.url, dataDir: config.dataDir });
  try {
    const done = flags.check === true ? [] : await migrate(database);
    const state = await migrationState(database);
    report(flags, state, done);
    if (state.pending.length > 0) process.exitCode = exitCodes.tryAgain;
  } finally {
    await database.close();
  }
}

function report(flags: Flags, { applied, pending }: MigrationState, done: readonly string[]): void {
  if (flags.json === true) {
    process.stdout.write(`${JSON.stringify({ applied, pending, applied_now: done })}\n`);
    return;
  }
  for (const name of done) process.stderr.write(`applied ${name}\n`);
  for (const name of pending) process.stderr.write(`pending ${name}: run chainbell migrate\n`);
  if (pending.length === 0) process.stderr.write(`the schema is up to date at migration ${applied}\n`);
}
