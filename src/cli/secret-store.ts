/**
 * Shared by the commands that use the database: their flags, and opening it with its key ring and its time.
 */
import type { Command } from 'commander';
import { InvalidArgumentError } from 'commander';
import type { Config } from '../config/schema.ts';
import { systemClock } from '../core/clock.ts';
import { OVERLAP_HOURS_DEFAULT, OVERLAP_HOURS_MAX } from '../domain/overlap.ts';
import type { SecretStore } from '../store/watchers/signing-secrets.ts';
import { exitCodes, withConfigOrDemo } from './exit.ts';

export type Flags = { config?: string; json?: boolean };

/** Adds a subcommand to `parent` with the flags that all these commands have. */
export function addStoreCommand(parent: Command, name: string, description: string): Command {
  return parent
    .command(name)
    .description(description)
    .option('--config <file>', 'configuration file (default: chainbell.yaml if it exists)')
    .option('--json', 'print JSON to standard output');
}

/** Adds `--overlap-hours`, which arrives as the number `overlapHours`. */
export function withOverlap(command: Command, description: string): Command {
  return command.option('--overlap-hours <number>', description, parseHours, OVERLAP_HOURS_DEFAULT);
}

/**
 * Opens the configured database, runs `work` on it, and closes it. Unless `mayCreate` is set, the database must exist: in another
 * folder than the service's, a command would find nothing and say so.
 */
export async function withStore(
  flags: Flags,
  work: (store: SecretStore, now: Date, config: Config) => Promise<void>,
  { mayCreate = false }: { mayCreate?: boolean } = {},
): Promise<void> {
  await withConfigOrDemo(flags, async (config: Config) => {
    const [
      { openKeyRing },
      { databasePlace, openForCommand, requireDatabase },
      { readTime },
      { requireSchema },
      { requireNoOpenMove },
    ] = await Promise.all([
      import('../app/open-key-ring.ts'),
      import('../store/db/command-database.ts'),
      import('../store/db/database-time.ts'),
      import('../store/db/migrate.ts'),
      import('../store/db/moved.ts'),
    ]);
    if (!mayCreate) requireDatabase(databasePlace(config));
    const database = await openForCommand(databasePlace(config));
    try {
      await requireSchema(database, { mayCreate });
      await requireNoOpenMove(database);
      const now = database.kind === 'embedded' ? systemClock().now() : await readTime(database);
      await work({ database, keyRing: await openKeyRing(config, database) }, now, config);
    } finally {
      await database.close();
    }
  });
}

/** Prints JSON to standard output. */
export function writeJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** Prints what a change has made. If it can't be printed, `lostAdvice` says what was made and what to do. */
export function writeMade(text: string, lostAdvice: string): void {
  process.stdout.write(text, (error) => {
    if (error === null || error === undefined) return;
    process.stderr.write(`chainbell: ${lostAdvice}\n`);
    process.exitCode = exitCodes.unavailable;
  });
}

function parseHours(text: string): number {
  const hours = Number(text);
  if (text.trim() === '' || !(hours >= 0 && hours <= OVERLAP_HOURS_MAX)) {
    throw new InvalidArgumentError(`It must be a number of hours from 0 to ${OVERLAP_HOURS_MAX}.`);
  }
  return hours;
}
