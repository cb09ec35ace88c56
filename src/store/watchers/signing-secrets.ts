/**
 * The secrets that sign each watcher's webhooks. The first read creates a watcher's first secret. Secrets are stored encrypted;
 * these functions return them decrypted.
 */
import { Fault } from '../../core/fault.ts';
import { type KeyRing, seal, unseal } from '../../domain/key-ring.ts';
import { generateSigningBytes, readSigningKeys, type SigningKeys } from '../../domain/signature.ts';
import { listOf } from '../db/arrays.ts';
import type { Database, Db } from '../db/db.ts';
import { sql } from '../db/sql.ts';

export type SigningSecret = {
  /** Number of this secret, counted per watcher from 1. */
  number: number;
  keys: SigningKeys;
  createdAt: Date;
  /** Nothing is signed with it from then on; undefined for the newest. */
  endsAt: Date | undefined;
  /** Whether its watcher wants `v1a` signatures too. */
  signsV1a: boolean;
};

export type SecretStore = { database: Database; keyRing: KeyRing };

/** Limit of valid secrets of one watcher. Each adds two signatures and 142 header characters to every attempt. */
const VALID_MAX = 5;

/** The valid secrets of a watcher, newest first. There is always at least one. */
export async function listSigningSecrets(
  store: SecretStore,
  watcherId: number,
  now: Date,
): Promise<SigningSecret[]> {
  const secrets = await listSecretsOf(store, [watcherId], now);
  return (secrets.get(watcherId) ?? []).map((open) => open());
}

/** Like `listSigningSecrets` for several watchers. Each secret is decrypted when called, so that one can fail alone. */
export async function listSecretsOf(
  { database, keyRing }: SecretStore,
  watcherIds: readonly number[],
  now: Date,
): Promise<Map<number, (() => SigningSecret)[]>> {
  let rows = await listValid(database, watcherIds, now);
  const known = new Set(rows.map((row) => row.watcher_id));
  const missing = watcherIds.filter((id) => !known.has(id));
  if (missing.length > 0) {
    await insertNew(
      database,
      keyRing,
      missing.map((watcherId) => ({ watcherId, number: 1, now })),
    );
    rows = await listValid(database, watcherIds, now);
  }
  const secrets = new Map<number, (() => SigningSecret)[]>(watcherIds.map((id) => [id, []]));
  for (const row of rows) {
    const signing = signingRow(row.watcher_id, row.number);
    secrets.get(row.watcher_id)?.push(() => ({
      number: row.number,
      keys: readSigningKeys(unseal({ ciphertext: row.ciphertext, kekId: row.kek_id }, signing, keyRing)),
      createdAt: row.created_at,
      endsAt: row.ends_at ?? undefined,
      signsV1a: row.signs_v1a,
    }));
  }
  return secrets;
}

/**
 * Creates a new secret. The currently valid ones end after `overlapMs`, unless they end before. Returns the valid secrets.
 * @throws Fault `conflict` if too many would be valid at once, `unauthorized` if the watcher is being or was deleted.
 */
export async function rotateSigningSecret(
  store: SecretStore,
  watcherId: number,
  { now, overlapMs }: { now: Date; overlapMs: number },
): Promise<SigningSecret[]> {
  const { database, keyRing } = store;
  const endsAt = new Date(now.getTime() + overlapMs);
  await listSigningSecrets(store, watcherId, now);
  await database.transaction(async (tx) => {
    // The lock serializes rotations of one watcher, so that each sees the numbers of the earlier ones.
    const rows = await tx.query(
      sql`select from watcher where id = ${watcherId} and deleting_at is null for no key update`,
    );
    if (rows.length === 0) throw new Fault('unauthorized', 'Unauthorized');
    const valid = await listValid(tx, [watcherId], now);
    const [newest] = valid;
    if (newest === undefined) throw new Error('the newest signing secret has no end');
    if (valid.length === VALID_MAX && overlapMs > 0) {
      throw new Fault(
        'conflict',
        `${VALID_MAX} signing secrets are valid. Wait for one to end, or rotate without overlap`,
      );
    }
    await tx.query(sql`
      update signing_secret set ends_at = least(ends_at, ${endsAt}) where watcher_id = ${watcherId}`);
    await tx.query(sql`delete from signing_secret where watcher_id = ${watcherId} and ends_at <= ${now}`);
    await insertNew(tx, keyRing, [{ watcherId, number: newest.number + 1, now }]);
  });
  return listSigningSecrets(store, watcherId, now);
}

/** Whether the watcher's webhooks carry `v1a` signatures too. */
export async function readSignsV1a(db: Db, watcherId: number): Promise<boolean> {
  const rows = await db.query(sql`select from watcher where id = ${watcherId} and signs_v1a`);
  return rows.length > 0;
}

/**
 * Adds `v1a` signatures to the watcher's webhooks, or leaves them out from now on.
 * @throws Fault `unauthorized` if the watcher is being or was deleted.
 */
export async function writeSignsV1a(db: Db, watcherId: number, signsV1a: boolean): Promise<void> {
  const rows = await db.query(sql`
    update watcher set signs_v1a = ${signsV1a} where id = ${watcherId} and deleting_at is null returning id`);
  if (rows.length === 0) throw new Fault('unauthorized', 'Unauthorized');
}

/** Additional authenticated data, which binds a ciphertext to its row. */
export function signingRow(watcherId: number, number: number): string {
  return `signing|${watcherId}|${number}`;
}

type SigningSecretRow = {
  watcher_id: number;
  number: number;
  ciphertext: Uint8Array;
  kek_id: string;
  created_at: Date;
  ends_at: Date | null;
  signs_v1a: boolean;
};

async function listValid(db: Db, watcherIds: readonly number[], now: Date): Promise<SigningSecretRow[]> {
  return db.query<SigningSecretRow>(sql`
    select w.id as watcher_id, s.number, s.ciphertext, s.kek_id, s.created_at, s.ends_at,
      coalesce((select signs_v1a from watcher where id = w.id), false) as signs_v1a
    from unnest(${listOf(watcherIds)}::bigint[]) as w (id)
    cross join lateral (
      select * from signing_secret
      where watcher_id = w.id and (ends_at is null or ends_at > ${now})
      order by number desc
      limit ${VALID_MAX}) as s
    order by w.id, s.number desc`);
}

/**
 * Inserts secrets of different watchers. Keeps a secret that another process has inserted at the same time, and skips watchers
 * that are being or were deleted.
 */
async function insertNew(
  db: Db,
  keyRing: KeyRing,
  secrets: readonly { watcherId: number; number: number; now: Date }[],
): Promise<void> {
  const sealed = secrets.map(({ watcherId, number }) =>
    seal(generateSigningBytes(), signingRow(watcherId, number), keyRing),
  );
  const watcherIds = listOf(secrets.map(({ watcherId }) => watcherId));
  await db.query(sql`
    with owner as materialized (
      select id from watcher where id = any(${watcherIds}::bigint[]) and deleting_at is null order by id for key share
    )
    insert into signing_secret (watcher_id, number, ciphertext, kek_id, created_at)
    select s.watcher_id, s.number, s.ciphertext, s.kek_id, s.created_at
    from unnest(
      ${watcherIds}::bigint[],
      ${listOf(secrets.map(({ number }) => number))}::integer[],
      ${sealed.map(({ ciphertext }) => ciphertext)}::bytea[],
      ${sealed.map(({ kekId }) => kekId)}::text[],
      ${secrets.map(({ now }) => now)}::timestamptz[]
    ) as s (watcher_id, number, ciphertext, kek_id, created_at)
    join owner on owner.id = s.watcher_id
    order by s.watcher_id
    on conflict do nothing`);
}
