/**
 * What the commands about keys and signing secrets share: their flags, and the database with its key ring and its time.
 */
import type { Command } from 'commander';
import { InvalidArgumentError } from 'commander';
import { openKeyRing } from '../app/open-key-ring.ts';
import type { Config } from '../config/schema.ts';
import { systemClock } from '../core/clock.ts';
import { OVERLAP_HOURS_DEFAULT, OVERLAP_HOURS_MAX } from '../domain/overlap.ts';
import { openForCommand } from '../store/db/command-database.ts';
import { readTime } from '../store/db/database-time.ts';
import { migrate } from '../store/db/migrate.ts';
import type { SecretStore } from '../store/watchers/signing-secrets.ts';
import { withConfigOrDemo } from './exit.ts';

export type Flags = { config?: string; json?: boolean };

/** A command below `parent`, with the flags that all of them have. */
export function addStoreCommand(parent: Command, name: string, description: string): Command {
  return parent
    .command(name)
    .description(description)
    .option('--config <file>', 'configuration file (default: chainbell.yaml when there is one)')
    .option('--json', 'JSON on standard output');
}

/** Adds `--overlap-hours`, a number in `overlapHours`. */
export function withOverlap(command: Command, description: string): Command {
  return command.option('--overlap-hours <number>', description, parseHours, OVERLAP_HOURS_DEFAULT);
}

/** Opens the database that the configuration names, migrated, for as long as `work` takes. */
export async function withStore(
  flags: Flags,
  work: (store: SecretStore, now: Date) => Promise<void>,
): Promise<void> {
  await withConfigOrDemo(flags, async (config: Config) => {
    const database = await openForCommand({ url: config.database.url, dataDir: config.dataDir });
    try {
      await migrate(database);
      const now = database.kind === 'embedded' ? systemClock().now() : await readTime(database);
      await work({ database, keyRing: await openKeyRing(config, database) }, now);
    } finally {
      await database.close();
    }
  });
}

/** JSON on standard output. */
export function writeJson(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

function parseHours(text: string): number {
  const hours = Number(text);
  if (text.trim() === '' || !(hours >= 0 && hours <= OVERLAP_HOURS_MAX)) {
    throw new InvalidArgumentError(`a number of hours from 0 to ${OVERLAP_HOURS_MAX}`);
  }
  return hours;
}
