import assert from 'node:assert/strict';
import { test } from 'node:test';
import { issueKey } from '../../../src/app/issue-keys.ts';
import { Fault } from '../../../src/core/fault.ts';
import { decryptKey, lookupsOf } from '../../../src/domain/api-key.ts';
import { deriveKeyRing, type KeyRing } from '../../../src/domain/key-ring.ts';
import { secretText } from '../../../src/domain/signature.ts';
import type { Db } from '../../../src/store/db/db.ts';
import { type Sql, sql } from '../../../src/store/db/sql.ts';
import { findDeliveryKey, listKekIds, revokeKey } from '../../../src/store/watchers/api-keys.ts';
import { countToRekey, rekeyBatch } from '../../../src/store/watchers/rekey.ts';
import { listSigningSecrets, rotateSigningSecret } from '../../../src/store/watchers/signing-secrets.ts';
import { later, noon } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { findKeyOwner } from '../../kit/key-owner.ts';

const [former, present] = [Buffer.alloc(32, 1), Buffer.alloc(32, 2)];
const formerRing = deriveKeyRing(former);
const presentRing = deriveKeyRing(present);
const both = deriveKeyRing(present, [former]);

onSampledDatabase(import.meta.url, ({ database }) => {
  const store = (keyRing: KeyRing) => ({ database: database(), keyRing });
  const issue = (name: string) => issueKey(store(formerRing), name, noon);
  const findBy = (key: string, ring: KeyRing) =>
    findKeyOwner(database(), lookupsOf(key, ring), later(1)).then((watcher) => watcher?.id);
  const rekeyAll = async () => {
    const counts: number[] = [];
    for (let count = await rekeyBatch(store(both)); count > 0; count = await rekeyBatch(store(both)))
      counts.push(count);
    return counts;
  };

  test('after rekeying, keys and secrets from the former master secret work with the current one alone', async () => {
    const [acme, other] = [await issue('acme'), await issue('other')];
    const revoked = await issue('acme');
    await revokeKey(database(), revoked.keyId, noon);
    await rotateSigningSecret(store(formerRing), acme.watcherId, { now: noon, overlapMs: 60_000 });
    const secretsOf = async (ring: KeyRing) =>
      (await listSigningSecrets(store(ring), acme.watcherId, later(1))).map(({ keys }) => secretText(keys));
    const secrets = await secretsOf(formerRing);

    // Before that, both key rings are accepted.
    assert.equal(await findBy(acme.key, both), acme.watcherId);
    assert.equal(await findBy(acme.key, presentRing), undefined);
    assert.deepEqual(await secretsOf(both), secrets);
    await assert.rejects(secretsOf(presentRing), /add it to formerSecrets/);

    assert.equal(await countToRekey(store(both)), 5);
    assert.deepEqual(await rekeyAll(), [5]);
    assert.equal(await countToRekey(store(both)), 0);
    assert.deepEqual(await listKekIds(database()), [presentRing.kekId]);
    for (const ring of [both, presentRing]) {
      assert.equal(await findBy(acme.key, ring), acme.watcherId);
      assert.equal(await findBy(other.key, ring), other.watcherId);
      assert.equal(await findBy(revoked.key, ring), undefined);
      assert.deepEqual(await secretsOf(ring), secrets);
      const key = await findDeliveryKey(database(), acme.watcherId, later(1));
      assert.ok(key !== undefined);
      assert.equal(decryptKey(key, { keyId: key.id, watcherId: acme.watcherId }, ring), acme.key);
    }
    assert.equal(await findBy(acme.key, formerRing), undefined);
  });

  test('a key that is re-encrypted between two requests is found by both', async () => {
    const { key, watcherId } = await issue('acme');
    const moving: Db = {
      async query<Row>(statement: Sql) {
        const rows = await database().query<Row>(statement);
        await rekeyBatch(store(both));
        return rows;
      },
    };
    assert.equal((await findKeyOwner(moving, lookupsOf(key, both), later(1)))?.id, watcherId);
    assert.equal(await countToRekey(store(both)), 0);
  });

  test('rekeying works in batches, and a later run continues with the rest', async () => {
    const keys: string[] = [];
    for (let index = 0; index < 230; index += 1) keys.push((await issue(`watcher ${index}`)).key);
    assert.equal(await rekeyBatch(store(both)), 100);
    assert.equal(await countToRekey(store(both)), 130);
    for (const key of keys) assert.ok((await findBy(key, both)) !== undefined);
    assert.deepEqual(await rekeyAll(), [100, 30]);
    for (const key of keys) assert.ok((await findBy(key, presentRing)) !== undefined);
  });

  test('two concurrent runs rekey each row once', async () => {
    for (let index = 0; index < 120; index += 1) await issue('acme');
    // Both have a connection, so neither finishes before the other begins.
    await Promise.all([countToRekey(store(both)), countToRekey(store(both))]);
    const counts = await Promise.all([rekeyAll(), rekeyAll()]);
    assert.equal(
      counts.flat().reduce((sum, count) => sum + count, 0),
      120,
    );
    assert.deepEqual(await listKekIds(database()), [presentRing.kekId]);
  });

  test('a row that cannot be decrypted is named in the error, and its batch stays as it was', async () => {
    const [good, bad] = [await issue('good'), await issue('bad')];
    await database().query(sql`
      update api_key set ciphertext = (select ciphertext from api_key where id = ${good.keyId}) where id = ${bad.keyId}`);
    await assert.rejects(
      rekeyBatch(store(both)),
      (error: unknown) => error instanceof Fault && error.message.startsWith(`${bad.keyId}|`),
    );
    assert.equal(await countToRekey(store(both)), 2);
    assert.equal(await findBy(good.key, both), good.watcherId);
  });
});
