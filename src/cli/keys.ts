/**
 * `chainbell keys create | list | rotate | revoke | rekey`: the API keys of watchers.
 */
import { type Command, InvalidArgumentError } from 'commander';
import type { IssuedKey, RevokedKey } from '../api/context.ts';
import { issueKey, newNameProblem, revokeKeyNow, rotateKey } from '../app/issue-keys.ts';
import { Fault } from '../core/fault.ts';
import { shownText } from '../core/terminal-text.ts';
import { overlapMsOf } from '../domain/overlap.ts';
import type { Db } from '../store/db/db.ts';
import { listKeys, type StoredKey, stateOfKey } from '../store/watchers/api-keys.ts';
import { countToRekey, rekeyBatch } from '../store/watchers/rekey.ts';
import type { SecretStore } from '../store/watchers/signing-secrets.ts';
import { pagesOf } from './pages.ts';
import { addStoreCommand, type Flags, withOverlap, withStore, writeJson, writeMade } from './secret-store.ts';
import { KILLED_REMARK, seeProcesses, shownProcess } from './see-processes.ts';
import { parseSlices } from './slices.ts';
import { table } from './table.ts';

/** Keys that one statement reads. The command prints all pages. */
const PAGE_KEYS = 10_000;

export function addKeysCommands(program: Command): void {
  const keys = program.command('keys').description('issue, list, rotate and revoke API keys');
  const add = (name: string, description: string) => addStoreCommand(keys, name, description);

  add('create', 'issue a key; it is shown only once')
    .requiredOption('--watcher <name>', 'owner of the key; a new name creates a watcher', parseName)
    .option(
      '--slices <number>',
      'slices of a new watcher with very many addresses; the number can be raised later (default: 1)',
      parseSlices,
    )
    .addHelpText(
      'after',
      '\nExample:\n  $ npm run --silent chainbell -- keys create --watcher acme --json\n\nTo credit deposits, set confirmations or removed on the watched addresses: docs/how-to/credit-deposits.md',
    )
    .action((flags: Flags & { watcher: string; slices?: number }, command: Command) =>
      withStore(
        flags,
        async (store, now) => {
          const problem = await newNameProblem(store.database, flags.watcher);
          if (problem !== undefined) command.error(`error: --watcher: ${problem}`);
          showIssued(flags, await issueKey(store, flags.watcher, now, flags.slices));
        },
        { mayCreate: true },
      ),
    );
  add('list', 'list all keys, without the secret part').action((flags: Flags) =>
    withStore(flags, async ({ database }, now) => showKeys(flags, await listAll(database), now)),
  );
  withOverlap(
    add('rotate <id>', 'issue a new key for the same watcher, and end this one after an overlap'),
    'how long the old key stays valid',
  ).action((id: string, flags: Flags & { overlapHours: number }) =>
    withStore(flags, async (store, now) =>
      showIssued(flags, await rotateKey(store, id, { now, overlapMs: overlapMsOf(flags.overlapHours) })),
    ),
  );
  add('revoke <id>', 'revoke a key at once').action((id: string, flags: Flags) =>
    withStore(flags, async ({ database }, now) =>
      showRevoked(flags, id, await revokeKeyNow(database, id, now)),
    ),
  );
  add(
    'rekey',
    're-encrypt all keys and signing secrets under the current secret; services may keep running',
  ).action((flags: Flags) => withStore(flags, (store) => rekey(flags, store)));
}

function parseName(text: string): string {
  if (text.trim() === '') throw new InvalidArgumentError('A watcher needs a name.');
  return text;
}

/** Warns if the watcher has no key left, because its webhooks continue without the Authorization header. */
function showRevoked(flags: Flags, id: string, { revokedAt, hasKey, remark }: RevokedKey): void {
  if (flags.json === true) {
    writeJson({ key_id: id, revoked_at: revokedAt.toISOString(), watcher_has_valid_key: hasKey });
    return;
  }
  process.stderr.write(`${id} is revoked\n`);
  if (remark !== undefined) process.stderr.write(`${remark}\n`);
}

/** The running processes that don't have the current secret, as text: they could neither check keys nor sign webhooks. */
async function processesWithoutSecret({ database, keyRing }: SecretStore): Promise<string | undefined> {
  const lacking = (await seeProcesses(database)).filter(
    ({ state, kekIds }) => state === 'running' && !kekIds.includes(keyRing.kekId),
  );
  return lacking.length === 0 ? undefined : lacking.map(shownProcess).join('; ');
}

const SECRET_ADVICE = 'Set it there as secret, or add it to formerSecrets (CHAINBELL_FORMER_SECRETS)';

/** @throws Fault `invalid` if a running process lacks the current secret. Nothing is re-encrypted then. */
async function requireSecretEverywhere(store: SecretStore): Promise<void> {
  const lacking = await processesWithoutSecret(store);
  if (lacking === undefined) return;
  throw new Fault(
    'invalid',
    `nothing was re-encrypted, because a running process doesn't have the new secret: ${lacking}. ${SECRET_ADVICE}, restart the process, and run this command again. ${KILLED_REMARK}`,
  );
}

/** @throws Fault `invalid` if a process that lacks the current secret has started, or stored its first heartbeat, since the first look. */
async function requireNoneStarted(store: SecretStore): Promise<void> {
  const lacking = await processesWithoutSecret(store);
  if (lacking === undefined) return;
  throw new Fault(
    'invalid',
    `everything is encrypted under the current secret, but a process that started meanwhile doesn't have it: ${lacking}. ${SECRET_ADVICE}, and restart the process. Until then it can't check keys or sign webhooks`,
  );
}

/** Commits each batch, so that a run after an interruption continues with the rest. */
async function rekey(flags: Flags, store: SecretStore): Promise<void> {
  await requireSecretEverywhere(store);
  const rowCount = await countToRekey(store);
  let doneCount = 0;
  for (;;) {
    const batchCount = await rekeyBatch(store);
    if (batchCount === 0) break;
    doneCount += batchCount;
    // A process that still runs under a former secret may have added rows.
    if (flags.json !== true)
      process.stderr.write(`${doneCount} of ${Math.max(rowCount, doneCount)} re-encrypted\n`);
  }
  await requireNoneStarted(store);
  if (flags.json === true) writeJson({ rekeyed: doneCount, kek_id: store.keyRing.kekId });
  else
    process.stderr.write(
      'everything is encrypted under the current secret. Once every process uses it, remove formerSecrets\n',
    );
}

function showIssued(flags: Flags, { watcherId, keyId, key }: IssuedKey): void {
  const lostAdvice = `the key ${keyId} of watcher ${watcherId} was issued, but could not be shown. Revoke it: chainbell keys revoke ${keyId}. Then issue another one: chainbell keys create`;
  if (flags.json === true) {
    writeMade(`${JSON.stringify({ watcher_id: watcherId, key_id: keyId, key })}\n`, lostAdvice);
    return;
  }
  process.stderr.write(
    `watcher ${watcherId}, key ${keyId}. Store the key now, because it is not shown again:\n`,
  );
  writeMade(`${key}\n`, lostAdvice);
}

async function listAll(db: Db): Promise<StoredKey[]> {
  const pages = pagesOf<StoredKey>(PAGE_KEYS, (after) => listKeys(db, PAGE_KEYS, after));
  return (await Array.fromAsync(pages)).flat();
}

function showKeys(flags: Flags, keys: readonly StoredKey[], now: Date): void {
  if (flags.json === true) {
    const json = keys.map((key) => ({
      key_id: key.id,
      watcher_id: key.watcherId,
      watcher: key.watcherName,
      created_at: key.createdAt.toISOString(),
      expires_at: key.expiresAt?.toISOString() ?? null,
      revoked_at: key.revokedAt?.toISOString() ?? null,
      state: stateOfKey(key, now),
    }));
    writeJson(json);
    return;
  }
  const rows = keys.map((key) => [
    ...[key.id, key.createdAt.toISOString(), shownState(key, now)],
    ...[String(key.watcherId), shownText(key.watcherName)],
  ]);
  process.stdout.write(table([['KEY', 'CREATED', 'STATE', 'WATCHER', 'NAME'], ...rows]));
  if (keys.length === 0)
    process.stderr.write('no keys yet. To issue one: chainbell keys create --watcher NAME\n');
}

function shownState(key: StoredKey, now: Date): string {
  const state = stateOfKey(key, now);
  return state === 'valid' && key.revokedAt !== undefined ? `ends ${key.revokedAt.toISOString()}` : state;
}
