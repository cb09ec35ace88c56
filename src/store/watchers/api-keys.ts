/**
 * Watchers and their API keys. These functions never see the text of a key, only its HMAC and its ciphertext.
 */
import { Fault } from '../../core/fault.ts';
import { fromBytes } from '../../core/hex.ts';
import { counted } from '../../core/plural.ts';
import { shellWord } from '../../core/terminal-text.ts';
import type { Sealed } from '../../domain/key-ring.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Db, Tx } from '../db/db.ts';
import { type Sql, sql } from '../db/sql.ts';

export type StoredKey = {
  id: string;
  watcherId: number;
  watcherName: string;
  kekId: string;
  createdAt: Date;
  /** The key is refused from then on. This is in the future while a rotated key overlaps with its successor. */
  revokedAt: Date | undefined;
  /** The end of that overlap; undefined for a key that was not rotated with one. Any other `revokedAt` is a revocation. */
  expiresAt: Date | undefined;
};

/** `expired`: it was rotated, and its overlap with the new key has ended. */
export type KeyState = 'valid' | 'revoked' | 'expired';

/** A revoked key stays revoked whatever the clock says; only an overlap depends on the time. */
export function stateOfKey(
  { revokedAt, expiresAt }: Pick<StoredKey, 'revokedAt' | 'expiresAt'>,
  now: Date,
): KeyState {
  if (revokedAt === undefined) return 'valid';
  if (revokedAt.getTime() !== expiresAt?.getTime()) return 'revoked';
  return revokedAt > now ? 'valid' : 'expired';
}

/** The same for `KeyState` 'valid' in a statement on api_key. */
export const isKeyValid = (now: Date): Sql =>
  sql`(revoked_at is null or revoked_at = expires_at and revoked_at > ${now})`;

/**
 * The id of the watcher with this name. Creates it if needed, with this number of slices if one is given.
 * @throws Fault `conflict` while the watcher is being deleted, and if it exists with another number of slices.
 */
export async function ensureWatcher(db: Db, name: string, now: Date, slices?: number): Promise<number> {
  await db.query(
    slices === undefined
      ? sql`insert into watcher (name, created_at) values (${name}, ${now}) on conflict do nothing`
      : sql`insert into watcher (name, created_at, slices) values (${name}, ${now}, ${slices}) on conflict do nothing`,
  );
  const [row] = await db.query<{ id: number; slices: number; is_deleting: boolean }>(
    sql`select id, slices, deleting_at is not null as is_deleting from watcher where name = ${name}`,
  );
  if (row === undefined) throw new Error(`watcher ${name} is missing`);
  if (row.is_deleting)
    throw new Fault(
      'conflict',
      `the watcher ${name} is being deleted. Finish that first, or choose another name`,
    );
  if (slices !== undefined && row.slices !== slices) {
    const advice =
      row.slices < slices
        ? `To raise the number: chainbell watchers slices ${shellWord(name)} ${slices}`
        : "The number can't be lowered, so leave it out";
    throw new Fault(
      'conflict',
      `the watcher ${name} exists and has ${counted(row.slices, 'slice')}. ${advice}`,
    );
  }
  return row.id;
}

export async function insertKey(
  db: Db,
  key: { id: string; watcherId: number; lookup: Buffer; now: Date } & Sealed,
): Promise<void> {
  await db.query(sql`
    insert into api_key (id, watcher_id, lookup, ciphertext, kek_id, created_at)
    values (${key.id}, ${key.watcherId}, ${key.lookup}, ${key.ciphertext}, ${key.kekId}, ${key.now})`);
}

/** A key by its HMAC, with its watcher. */
export type PresentedKey = {
  id: string;
  createdAt: Date;
  /** When it is or was refused; undefined for one that was neither revoked nor rotated. */
  endsAt: Date | undefined;
  state: KeyState;
  watcherId: number;
  isSuspended: boolean;
};

/**
 * The key that has one of these HMACs. Every request queries it, so that a revocation takes effect at once. All HMACs are in one
 * statement, so that a key whose HMAC changes meanwhile is found by the old one or the new one.
 */
export async function findKeyByLookup(
  db: Db,
  lookups: readonly Buffer[],
  now: Date,
): Promise<PresentedKey | undefined> {
  const [row] = await db.query<{
    id: string;
    created_at: Date;
    revoked_at: Date | null;
    expires_at: Date | null;
    watcher_id: number;
    is_suspended: boolean;
  }>(sql`
    select k.id, k.created_at, k.revoked_at, k.expires_at, k.watcher_id, w.suspended_at is not null as is_suspended
    from api_key k join watcher w on w.id = k.watcher_id
    where lookup = any(${bytesOf(lookups.map(fromBytes))}::bytea[])`);
  if (row === undefined) return undefined;
  const [endsAt, expiresAt] = [row.revoked_at ?? undefined, row.expires_at ?? undefined];
  return {
    ...{
      id: row.id,
      createdAt: row.created_at,
      endsAt,
      state: stateOfKey({ revokedAt: endsAt, expiresAt }, now),
    },
    ...{ watcherId: row.watcher_id, isSuspended: row.is_suspended },
  };
}

export async function findWatcherByName(db: Db, name: string): Promise<number | undefined> {
  const [row] = await db.query<{ id: number }>(sql`select id from watcher where name = ${name}`);
  return row?.id;
}

/** The key that each watcher's webhooks carry: the newest one that is not revoked. Watchers without one are missing. */
export async function findDeliveryKeys(
  db: Db,
  watcherIds: readonly number[],
  now: Date,
): Promise<Map<number, { id: string } & Sealed>> {
  const rows = await db.query<{ watcher_id: number; id: string; kek_id: string; ciphertext: Uint8Array }>(sql`
    select w.id as watcher_id, k.id, k.kek_id, k.ciphertext
    from unnest(${listOf(watcherIds)}::bigint[]) as w (id)
    cross join lateral (
      select id, kek_id, ciphertext from api_key
      where watcher_id = w.id and ${isKeyValid(now)}
      order by revoked_at desc nulls first, created_at desc, id
      limit 1) as k`);
  return new Map(
    rows.map((row) => [row.watcher_id, { id: row.id, kekId: row.kek_id, ciphertext: row.ciphertext }]),
  );
}

export async function findDeliveryKey(
  db: Db,
  watcherId: number,
  now: Date,
): Promise<({ id: string } & Sealed) | undefined> {
  return (await findDeliveryKeys(db, [watcherId], now)).get(watcherId);
}

/** The last key of the previous page. */
export type KeyCursor = { createdAt: Date; id: string };

/** A page of the keys of all watchers, oldest first. */
export async function listKeys(db: Db, limit: number, after?: KeyCursor): Promise<StoredKey[]> {
  const rows = await db.query<KeyRow>(sql`
    ${selectKeys}
    where ${after === undefined ? sql`true` : sql`(k.created_at, k.id) > (${after.createdAt}::timestamptz, ${after.id}::text)`}
    order by k.created_at, k.id limit ${limit}`);
  return rows.map(toKey);
}

/** A page of the keys of a watcher, or of all, newest first. */
export async function listNewestKeys(
  db: Db,
  { watcherId, after, limit }: { watcherId: number | undefined; after: KeyCursor | undefined; limit: number },
): Promise<StoredKey[]> {
  const rows = await db.query<KeyRow>(sql`
    ${selectKeys}
    where ${watcherId === undefined ? sql`true` : sql`k.watcher_id = ${watcherId}`}
      and ${after === undefined ? sql`true` : sql`(k.created_at, k.id) < (${after.createdAt}::timestamptz, ${after.id}::text)`}
    order by k.created_at desc, k.id desc limit ${limit}`);
  return rows.map(toKey);
}

/** The keys of a watcher, newest first, up to `limit`. */
export async function listWatcherKeys(db: Db, watcherId: number, limit: number): Promise<StoredKey[]> {
  const rows = await db.query<KeyRow>(sql`
    ${selectKeys} where k.watcher_id = ${watcherId} order by k.created_at desc, k.id limit ${limit}`);
  return rows.map(toKey);
}

export async function findKey(db: Db, id: string): Promise<StoredKey | undefined> {
  const [row] = await db.query<KeyRow>(sql`${selectKeys} where k.id = ${id}`);
  return row && toKey(row);
}

/** Keeps other transactions from changing the key until this one ends, so that of two rotations the second sees the first. */
export async function lockKey(tx: Tx, id: string): Promise<void> {
  await tx.query(sql`select from api_key where id = ${id} for no key update`);
}

/**
 * Revokes a key at `at`, unless it was revoked earlier. A key whose overlap has ended becomes a revoked one too, because the overlap
 * would move with the clock. Returns whether the key exists.
 */
export async function revokeKey(db: Db, id: string, at: Date): Promise<boolean> {
  const rows = await db.query(sql`
    update api_key set revoked_at = least(revoked_at, ${at}::timestamptz, expires_at - interval '1 ms')
    where id = ${id} returning id`);
  return rows.length > 0;
}

/** Ends a key at `at`, as the overlap after a rotation does. */
export async function expireKey(db: Db, id: string, at: Date): Promise<void> {
  await db.query(sql`
    update api_key set revoked_at = least(revoked_at, ${at}), expires_at = ${at} where id = ${id}`);
}

type KeyRow = {
  id: string;
  watcher_id: number;
  name: string;
  kek_id: string;
  created_at: Date;
  revoked_at: Date | null;
  expires_at: Date | null;
};

const selectKeys = sql`
  select k.id, k.watcher_id, w.name, k.kek_id, k.created_at, k.revoked_at, k.expires_at
  from api_key k join watcher w on w.id = k.watcher_id`;

function toKey(row: KeyRow): StoredKey {
  return {
    id: row.id,
    watcherId: row.watcher_id,
    watcherName: row.name,
    kekId: row.kek_id,
    createdAt: row.created_at,
    revokedAt: row.revoked_at ?? undefined,
    expiresAt: row.expires_at ?? undefined,
  };
}

/**
 * The ids of the key-encryption keys that stored API keys and signing secrets need. Anyone can make a process read them, so it reads one
 * index entry for each instead of both tables.
 */
export async function listKekIds(db: Db): Promise<string[]> {
  const rows = await db.query<{ kek_id: string }>(sql`
    with recursive of_keys (kek_id) as (
      (select min(kek_id) from api_key)
      union all
      select (select min(k.kek_id) from api_key k where k.kek_id > o.kek_id) from of_keys o where o.kek_id is not null
    ), of_secrets (kek_id) as (
      (select min(kek_id) from signing_secret)
      union all
      select (select min(s.kek_id) from signing_secret s where s.kek_id > o.kek_id) from of_secrets o where o.kek_id is not null
    )
    select kek_id from of_keys where kek_id is not null
    union select kek_id from of_secrets where kek_id is not null
    order by kek_id limit 100`);
  return rows.map((row) => row.kek_id);
}
