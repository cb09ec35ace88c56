/**
 * Re-encrypts stored secrets under the current key-encryption key while services run. Services look keys up by every pepper and
 * decrypt each row by its `kek_id`, so a row may change at any time.
 */
import { fromBytes } from '../../core/hex.ts';
import { decryptKey, encryptKey, lookupOf } from '../../domain/api-key.ts';
import { type KeyRing, seal, unseal } from '../../domain/key-ring.ts';
import { bytesOf, listOf } from '../db/arrays.ts';
import type { Tx } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import { type SecretStore, signingRow } from './signing-secrets.ts';

/** Rows of each table in one transaction. Writers of these rows wait for it; readers don't. */
const BATCH_ROWS_MAX = 100;

/**
 * Re-encrypts up to 100 API keys and 100 signing secrets in one commit, and returns the number of rows. Call it until it returns
 * 0, when all rows are under the current key. It can be interrupted at any time.
 * @throws Fault `unavailable` if the secret that a row needs is not configured.
 */
export async function rekeyBatch({ database, keyRing }: SecretStore): Promise<number> {
  return database.transaction(
    async (tx) => (await rekeyApiKeys(tx, keyRing)) + (await rekeySigningSecrets(tx, keyRing)),
  );
}

/** How many rows are encrypted under another key than the current one. */
export async function countToRekey({ database, keyRing }: SecretStore): Promise<number> {
  const [row] = await database.query<{ count: number }>(sql`
    select (select count(*) from api_key where kek_id <> ${keyRing.kekId})
      + (select count(*) from signing_secret where kek_id <> ${keyRing.kekId}) as count`);
  return row?.count ?? 0;
}

async function rekeyApiKeys(tx: Tx, keyRing: KeyRing): Promise<number> {
  const rows = await tx.query<{ id: string; watcher_id: number; ciphertext: Uint8Array; kek_id: string }>(sql`
    select id, watcher_id, ciphertext, kek_id from api_key where kek_id <> ${keyRing.kekId}
    order by id
    limit ${BATCH_ROWS_MAX}
    for update`);
  const keys = rows.map(({ id, watcher_id: watcherId, ciphertext, kek_id: kekId }) => {
    const text = decryptKey({ ciphertext, kekId }, { keyId: id, watcherId }, keyRing);
    const sealed = encryptKey(text, { keyId: id, watcherId }, keyRing);
    return { id, lookup: lookupOf(text, keyRing), ciphertext: sealed.ciphertext };
  });
  await tx.query(sql`
    update api_key k set lookup = n.lookup, ciphertext = n.ciphertext, kek_id = ${keyRing.kekId}
    from unnest(
      ${listOf(keys.map(({ id }) => id))}::text[],
      ${bytesOf(keys.map(({ lookup }) => fromBytes(lookup)))}::bytea[],
      ${bytesOf(keys.map(({ ciphertext }) => fromBytes(ciphertext)))}::bytea[]
    ) as n (id, lookup, ciphertext)
    where k.id = n.id`);
  return rows.length;
}

async function rekeySigningSecrets(tx: Tx, keyRing: KeyRing): Promise<number> {
  const rows = await tx.query<{
    watcher_id: number;
    number: number;
    ciphertext: Uint8Array;
    kek_id: string;
  }>(sql`
    select watcher_id, number, ciphertext, kek_id from signing_secret where kek_id <> ${keyRing.kekId}
    order by watcher_id, number
    limit ${BATCH_ROWS_MAX}
    for update`);
  const secrets = rows.map(({ watcher_id: watcherId, number, ciphertext, kek_id: kekId }) => {
    const row = signingRow(watcherId, number);
    return { watcherId, number, ...seal(unseal({ ciphertext, kekId }, row, keyRing), row, keyRing) };
  });
  await tx.query(sql`
    update signing_secret s set ciphertext = n.ciphertext, kek_id = ${keyRing.kekId}
    from unnest(
      ${listOf(secrets.map(({ watcherId }) => watcherId))}::bigint[],
      ${listOf(secrets.map(({ number }) => number))}::integer[],
      ${bytesOf(secrets.map(({ ciphertext }) => fromBytes(ciphertext)))}::bytea[]
    ) as n (watcher_id, number, ciphertext)
    where s.watcher_id = n.watcher_id and s.number = n.number`);
  return rows.length;
}
