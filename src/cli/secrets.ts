/**
 * `chainbell secrets show | rotate`: the signing secrets of a watcher's webhooks.
 */
import type { Command } from 'commander';
import { overlapMsOf } from '../domain/overlap.ts';
import { publicKeyText, secretText } from '../domain/signature.ts';
import {
  listSigningSecrets,
  rotateSigningSecret,
  type SecretStore,
  type SigningSecret,
} from '../store/watchers/signing-secrets.ts';
import { requireWatcherId } from './find-watcher.ts';
import { addStoreCommand, type Flags, withOverlap, withStore, writeMade } from './secret-store.ts';

type WatcherFlags = Flags & { watcher: string };

export function addSecretsCommands(program: Command): void {
  const secrets = program.command('secrets').description('show and rotate the signing secrets of webhooks');
  const add = (name: string, description: string) =>
    addStoreCommand(secrets, name, description).requiredOption(
      '--watcher <watcher>',
      'the watcher whose webhooks they sign (name or id)',
    );

  add('show', "show a watcher's valid secrets with their public keys, newest first").action(
    (flags: WatcherFlags) =>
      withWatcher(flags, async (store, watcherId, now) => {
        const secrets = await listSigningSecrets(store, watcherId, now);
        process.stdout.write(await textOf(flags, watcherId, secrets));
      }),
  );
  withOverlap(
    add('rotate', 'create a new secret and key pair, and end the former ones after an overlap'),
    'how long the former secrets also sign',
  ).action((flags: WatcherFlags & { overlapHours: number }) =>
    withWatcher(flags, async (store, watcherId, now) => {
      const options = { now, overlapMs: overlapMsOf(flags.overlapHours) };
      const made = await rotateSigningSecret(store, watcherId, options);
      const lostAdvice = `the secrets of watcher ${watcherId} were rotated, but could not be shown. To see them: chainbell secrets show --watcher ${watcherId}`;
      writeMade(await textOf(flags, watcherId, made), lostAdvice);
    }),
  );
}

/** Runs `work` with the watcher that the flags name. */
async function withWatcher(
  flags: WatcherFlags,
  work: (store: SecretStore, watcherId: number, now: Date) => Promise<void>,
): Promise<void> {
  await withStore(flags, async (store, now) =>
    work(store, await requireWatcherId(store.database, flags.watcher), now),
  );
}

async function textOf(
  flags: WatcherFlags,
  watcherId: number,
  secrets: readonly SigningSecret[],
): Promise<string> {
  if (flags.json === true) {
    const { toSecretJson } = await import('../api/notifications/signing-secrets.ts');
    return `${JSON.stringify({ watcher_id: watcherId, secrets: secrets.map(toSecretJson) })}\n`;
  }
  const lines = secrets.map(({ number, keys, endsAt }) => {
    const state = endsAt === undefined ? 'valid' : `ends ${endsAt.toISOString()}`;
    return `${number}  ${state}  ${secretText(keys)}  ${publicKeyText(keys)}\n`;
  });
  return lines.join('');
}
