/**
 * `chainbell keys create | list | rotate | revoke`: the API keys of watchers (DESIGN §8).
 */
import type { Command } from 'commander';
import { InvalidArgumentError } from 'commander';
import type { Config } from '../config/schema.ts';
import { systemClock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import { type IssuedKey, issueKey, rotateKey } from '../keys.ts';
import { openKeyRing } from '../secret.ts';
import { openDatabase } from '../store/db.ts';
import { listKeys, revokeKey, type StoredKey } from '../store/keys.ts';
import { migrate } from '../store/migrate.ts';
import type { SecretStore } from '../store/signing-secrets.ts';
import { readTime } from '../store/time.ts';
import { withConfig } from './exit.ts';

type Flags = { config?: string; json?: boolean };

/** A list for people; an installation with more watchers asks for JSON in a script of its own, or the database. */
const LISTED_MAX = 10_000;
const HOUR_MS = 3_600_000;
/** A year: whoever wants two keys for longer issues a second one. */
const OVERLAP_HOURS_MAX = 8_760;

export function addKeysCommands(program: Command): void {
  const keys = program.command('keys').description('issue, list, rotate and revoke API keys');
  const add = (name: string, description: string) =>
    keys
      .command(name)
      .description(description)
      .option('--config <file>', 'configuration file (default: chainbell.yaml when there is one)')
      .option('--json', 'JSON on standard output');

  add('create', 'issue a key; it is shown this once')
    .requiredOption('--watcher <name>', 'whose key it is; a new name is a new watcher')
    .addHelpText('after', '\nExample:\n  $ npm run --silent chainbell -- keys create --watcher acme --json')
    .action((flags: Flags & { watcher: string }) =>
      withIssuer(flags, async (issuer, now) => showIssued(flags, await issueKey(issuer, flags.watcher, now))),
    );
  add('list', 'all keys, without their texts').action((flags: Flags) =>
    withIssuer(flags, async ({ database }, now) =>
      showKeys(flags, await listKeys(database, LISTED_MAX), now),
    ),
  );
  add('rotate <id>', 'issue a new key for the same watcher and end this one after an overlap')
    .option('--overlap-hours <number>', 'how long the old key stays valid', parseHours, 24)
    .action((id: string, flags: Flags & { overlapHours: number }) =>
      withIssuer(flags, async (issuer, now) =>
        showIssued(flags, await rotateKey(issuer, id, { now, overlapMs: flags.overlapHours * HOUR_MS })),
      ),
    );
  add('revoke <id>', 'refuse a key from now on').action((id: string, flags: Flags) =>
    withIssuer(flags, async ({ database }, now) => {
      if (!(await revokeKey(database, id, now)))
        throw new Fault('not_found', `no key has the id ${id}: see chainbell keys list`);
      if (flags.json === true)
        process.stdout.write(`${JSON.stringify({ key_id: id, revoked_at: now.toISOString() })}\n`);
      else process.stderr.write(`${id} is revoked\n`);
    }),
  );
}

async function withIssuer(
  flags: Flags,
  work: (issuer: SecretStore, now: Date) => Promise<void>,
): Promise<void> {
  await withConfig(flags, async (config: Config) => {
    const database = await openDatabase({ url: config.database.url, dataDir: config.dataDir });
    try {
      await migrate(database);
      const now = database.kind === 'embedded' ? systemClock().now() : await readTime(database);
      await work({ database, keyRing: await openKeyRing(config, database) }, now);
    } finally {
      await database.close();
    }
  });
}

function showIssued(flags: Flags, { watcherId, keyId, key }: IssuedKey): void {
  if (flags.json === true) {
    process.stdout.write(`${JSON.stringify({ watcher_id: watcherId, key_id: keyId, key })}\n`);
    return;
  }
  process.stderr.write(`watcher ${watcherId}, key ${keyId}; keep it now, it is not shown again:\n`);
  process.stdout.write(`${key}\n`);
}

function showKeys(flags: Flags, keys: readonly StoredKey[], now: Date): void {
  if (flags.json === true) {
    const json = keys.map((key) => ({
      key_id: key.id,
      watcher_id: key.watcherId,
      watcher: key.watcherName,
      created_at: key.createdAt.toISOString(),
      revoked_at: key.revokedAt?.toISOString() ?? null,
    }));
    process.stdout.write(`${JSON.stringify(json)}\n`);
    return;
  }
  if (keys.length === 0) process.stderr.write('no keys: chainbell keys create --watcher NAME\n');
  for (const key of keys) {
    const state =
      key.revokedAt === undefined
        ? 'valid'
        : key.revokedAt > now
          ? `ends ${key.revokedAt.toISOString()}`
          : 'revoked';
    process.stdout.write(
      `${key.id}  ${key.createdAt.toISOString()}  ${state}  ${key.watcherId} ${key.watcherName}\n`,
    );
  }
}

function parseHours(text: string): number {
  const hours = Number(text);
  if (text.trim() === '' || !(hours >= 0 && hours <= OVERLAP_HOURS_MAX)) {
    throw new InvalidArgumentError(`a number of hours from 0 to ${OVERLAP_HOURS_MAX}`);
  }
  return hours;
}
