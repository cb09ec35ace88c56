/**
 * Finds the watcher that a command names: by its name, or by its id if no watcher has that name.
 */
import { Fault } from '../core/fault.ts';
import { shownText } from '../core/terminal-text.ts';
import { idInKey } from '../domain/api-key.ts';
import type { Db } from '../store/db/db.ts';
import { findWatcherByName } from '../store/watchers/api-keys.ts';
import { findWatcher } from '../store/watchers/watchers.ts';

/** @throws Fault `not_found` */
export async function requireWatcherId(db: Db, word: string): Promise<number> {
  const id = await findWatcherByName(db, word);
  if (id !== undefined) return id;
  const number = /^\d{1,15}$/.test(word) ? Number(word) : undefined;
  if (number === undefined || (await findWatcher(db, number, new Date(0))) === undefined)
    throw unknownWatcher(word);
  return number;
}

export function unknownWatcher(word: string): Fault {
  const keyId = idInKey(word);
  return new Fault(
    'not_found',
    keyId === undefined
      ? `no watcher has the name or id ${shownText(word)}. To see all: chainbell watchers list`
      : `this is a whole API key, not the name or id of a watcher. To see the watcher of ${keyId}: chainbell keys list`,
  );
}
