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
import { addStoreCommand, type Flags, withOverlap, withStore, writeJson } from './secret-store.ts';

type WatcherFlags = Flags & { watcher: string };

export function addSecretsCommands(program: Command): void {
  const secrets = program.command('secrets').description('show and rotate the signing secrets of webhooks');
  const add = (name: string, description: string) =>
    addStoreCommand(secrets, name, description).requiredOption(
      '--watcher <watcher>',
      'the watcher whose webhooks they sign (name or id)',
    );

  add('show', "show a watcher's valid secrets with their public keys, newest first").action(
    (flags: WatcherFlags) => withWatcher(flags, listSigningSecrets),
  );
  withOverlap(
    add('rotate', 'create a new secret and key pair, and end the former ones after an overlap'),
    'how long the former secrets also sign',
  ).action((flags: WatcherFlags & { overlapHours: number }) =>
    withWatcher(flags, async (store, watcherId, now) =>
      rotateSigningSecret(store, watcherId, { now, overlapMs: overlapMsOf(flags.overlapHours) }),
    ),
  );
}

/** Shows the secrets that `work` returns for the watcher that the flags name. */
async function withWatcher(
  flags: WatcherFlags,
  work: (store: SecretStore, watcherId: number, now: Date) => Promise<SigningSecret[]>,
): Promise<void> {
  await withStore(flags, async (store, now) => {
    const watcherId = await requireWatcherId(store.database, flags.watcher);
    await show(flags, watcherId, await work(store, watcherId, now));
  });
}

async function show(
  flags: WatcherFlags,
  watcherId: number,
  secrets: readonly SigningSecret[],
): Promise<void> {
  if (flags.json === true) {
    const { toSecretJson } = await import('../api/notifications/signing-secrets.ts');
    writeJson({ watcher_id: watcherId, secrets: secrets.map(toSecretJson) });
    return;
  }
  for (const { number, keys, endsAt } of secrets) {
    const state = endsAt === undefined ? 'valid' : `ends ${endsAt.toISOString()}`;
    process.stdout.write(`${number}  ${state}  ${secretText(keys)}  ${publicKeyText(keys)}\n`);
  }
}
