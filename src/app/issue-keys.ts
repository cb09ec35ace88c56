/**
 * Issues, rotates and ends API keys.
 */
import type { IssuedKey, RevokedKey } from '../api/context.ts';
import { Fault } from '../core/fault.ts';
import { shellWord } from '../core/terminal-text.ts';
import { encryptKey, generateApiKey, idInKey, lookupOf } from '../domain/api-key.ts';
import type { KeyRing } from '../domain/key-ring.ts';
import { nameProblem } from '../domain/watcher-name.ts';
import type { Db, Tx } from '../store/db/db.ts';
import {
  ensureWatcher,
  expireKey,
  findDeliveryKey,
  findKey,
  findWatcherByName,
  insertKey,
  lockKey,
  revokeKey,
  stateOfKey,
} from '../store/watchers/api-keys.ts';
import type { SecretStore } from '../store/watchers/signing-secrets.ts';

/** The clocks of processes may be behind the database's clock by less than this (src/app/common-clock.ts). */
const CLOCK_SPREAD_MS = 1_000;

/**
 * Issues a key for the watcher of that name, and creates the watcher if it is new, with `slices` if given. @throws Fault `invalid`
 * for a new name that isn't allowed, `conflict` if the watcher exists with another number of slices.
 */
export async function issueKey(
  { database, keyRing }: SecretStore,
  watcherName: string,
  now: Date,
  slices?: number,
): Promise<IssuedKey> {
  const problem = await newNameProblem(database, watcherName);
  if (problem !== undefined) throw new Fault('invalid', problem);
  return database.transaction((tx) => insertNewKey(tx, keyRing, { watcherName, now, slices }));
}

/** The reason why that name can't be used for a new watcher; undefined for a valid name, and for an existing watcher. */
export async function newNameProblem(db: Db, watcherName: string): Promise<string | undefined> {
  const problem = nameProblem(watcherName);
  // PostgreSQL doesn't accept text with a NUL.
  if (problem === undefined || watcherName.includes('\0')) return problem;
  return (await findWatcherByName(db, watcherName)) === undefined ? problem : undefined;
}

/**
 * Issues a new key beside the old one, which is refused after `overlapMs`. Webhooks carry the new one at once.
 * @throws Fault `not_found` for an unknown key, `conflict` for one that was rotated or revoked.
 */
export async function rotateKey(
  { database, keyRing }: SecretStore,
  keyId: string,
  { now, overlapMs }: { now: Date; overlapMs: number },
): Promise<IssuedKey> {
  return database.transaction(async (tx) => {
    await lockKey(tx, keyId);
    const old = await findKey(tx, keyId);
    if (old === undefined) throw notFound(keyId);
    if (old.revokedAt !== undefined) {
      const ended =
        stateOfKey(old, now) === 'valid'
          ? `was already rotated, and stays valid until ${old.revokedAt.toISOString()}`
          : 'has already ended';
      throw new Fault(
        'conflict',
        `the key ${keyId} ${ended}. To issue a new one: chainbell keys create --watcher ${shellWord(old.watcherName)}`,
      );
    }
    const issued = await insertNewKey(tx, keyRing, { watcherName: old.watcherName, now });
    if (overlapMs === 0) await endKey(tx, keyId, now);
    else await expireKey(tx, keyId, new Date(now.getTime() + overlapMs));
    return issued;
  });
}

/** Revokes a key at a time that is past for every process, even one whose clock is behind. @throws Fault `not_found` */
export async function endKey(db: Db, keyId: string, now: Date): Promise<{ revokedAt: Date }> {
  const revokedAt = new Date(now.getTime() - CLOCK_SPREAD_MS);
  if (!(await revokeKey(db, keyId, revokedAt))) throw notFound(keyId);
  return { revokedAt };
}

/** Revokes a key at once, and says so if its watcher has no other valid one. @throws Fault `not_found` */
export async function revokeKeyNow(db: Db, keyId: string, now: Date): Promise<RevokedKey> {
  const { revokedAt } = await endKey(db, keyId, now);
  const key = await findKey(db, keyId);
  const watcherName = key?.watcherName ?? '';
  const hasKey = key !== undefined && (await findDeliveryKey(db, key.watcherId, now)) !== undefined;
  const remark = `${watcherName} has no valid key left. Its webhooks still go out, without the Authorization header. To stop them: chainbell watchers suspend ${shellWord(watcherName)}. To send the header again: chainbell keys create --watcher ${shellWord(watcherName)}`;
  return { watcherName, revokedAt, hasKey, remark: hasKey ? undefined : remark };
}

function notFound(keyId: string): Fault {
  const id = idInKey(keyId);
  return new Fault(
    'not_found',
    id === undefined
      ? `no key has the id ${keyId}: see chainbell keys list`
      : `this is a whole API key. Use only its id, which is ${id}`,
  );
}

async function insertNewKey(
  tx: Tx,
  keyRing: KeyRing,
  { watcherName, now, slices }: { watcherName: string; now: Date; slices?: number | undefined },
): Promise<IssuedKey> {
  const watcherId = await ensureWatcher(tx, watcherName, now, slices);
  const { id, text } = generateApiKey();
  await insertKey(tx, {
    id,
    watcherId,
    lookup: lookupOf(text, keyRing),
    ...encryptKey(text, { keyId: id, watcherId }, keyRing),
    now,
  });
  return { watcherId, watcherName, keyId: id, key: text, createdAt: now };
}
