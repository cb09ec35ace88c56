import assert from 'node:assert/strict';
import { test } from 'node:test';
import { endKey, issueKey, rotateKey } from '../../../src/app/issue-keys.ts';
import { Fault } from '../../../src/core/fault.ts';
import { decryptKey, lookupsOf } from '../../../src/domain/api-key.ts';
import { deriveKeyRing } from '../../../src/domain/key-ring.ts';
import type { Database, Db } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import {
  findDeliveryKey,
  findKey,
  listKekIds,
  listKeys,
  listWatcherKeys,
  revokeKey,
} from '../../../src/store/watchers/api-keys.ts';
import { later, noon } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { findKeyOwner } from '../../kit/key-owner.ts';

const keyRing = deriveKeyRing(Buffer.alloc(32, 7));

const findBy = (database: Database, key: string, now: Date) =>
  findKeyOwner(database, lookupsOf(key, keyRing), now).then((watcher) => watcher?.id);

/** The text of the key that this watcher's webhooks carry. */
async function deliveryKeyOf(database: Database, watcherId: number, now: Date): Promise<string | undefined> {
  const key = await findDeliveryKey(database, watcherId, now);
  return key && decryptKey(key, { keyId: key.id, watcherId }, keyRing);
}

onSampledDatabase(import.meta.url, ({ database }) => {
  const issue = (name: string, now = noon) => issueKey({ database: database(), keyRing }, name, now);
  const rotate = (keyId: string, now: Date, overlapMs: number) =>
    rotateKey({ database: database(), keyRing }, keyId, { now, overlapMs });

  test('a key identifies its watcher, and two keys of one name belong to one watcher', async () => {
    const [first, second, other] = [
      await issue('acme'),
      await issue('acme', later(1)),
      await issue('other', later(2)),
    ];
    assert.equal(second.watcherId, first.watcherId);
    assert.notEqual(other.watcherId, first.watcherId);
    assert.equal(await findBy(database(), first.key, noon), first.watcherId);
    assert.equal(await findBy(database(), other.key, noon), other.watcherId);
    assert.equal(await findBy(database(), `${first.key}x`, noon), undefined);
    assert.deepEqual(
      (await listKeys(database(), 10)).map(({ id, watcherName }) => [id, watcherName]),
      [
        [first.keyId, 'acme'],
        [second.keyId, 'acme'],
        [other.keyId, 'other'],
      ],
    );
    assert.deepEqual(await listKekIds(database()), [keyRing.kekId]);
  });

  test('the secrets that stored keys need are found by an index, however many keys there are', async () => {
    const { watcherId } = await issue('acme');
    await database().query(sql`
      insert into api_key (id, watcher_id, lookup, ciphertext, kek_id, created_at)
      select 'k' || n, ${watcherId}, int8send(n), '', 'kek ' || n % 3, ${noon} from generate_series(1, 20000) n`);
    await database().query(sql`analyze api_key`);
    let text = '';
    const watched: Db = {
      query: (statement) => {
        text = statement.text;
        return database().query(statement);
      },
    };
    assert.deepEqual(await listKekIds(watched), [keyRing.kekId, 'kek 0', 'kek 1', 'kek 2'].sort());
    const plan = await database().query<{ 'QUERY PLAN': string }>({ text: `explain ${text}`, values: [] });
    const lines = plan.map((row) => row['QUERY PLAN']).join('\n');
    assert.doesNotMatch(lines, /Seq Scan on api_key/);
  });

  test('concurrent requests for a new name create one watcher', async () => {
    const issued = await Promise.all(Array.from({ length: 6 }, () => issue('acme')));
    assert.equal(new Set(issued.map(({ watcherId }) => watcherId)).size, 1);
  });

  test('the text of a key is not stored', async () => {
    const { key } = await issue('acme');
    const [row] = await database().query<{ text: string; ciphertext: Uint8Array }>(
      sql`select api_key::text as text, ciphertext from api_key`,
    );
    assert.ok(row !== undefined);
    assert.ok(
      !row.text.includes(key.slice(22, 60)) && !Buffer.from(row.ciphertext).includes(key.slice(22, 60)),
    );
  });

  test('a ciphertext that was moved to another row does not decrypt', async () => {
    const [victim, thief] = [await issue('victim'), await issue('thief')];
    await database().query(sql`
      update api_key set ciphertext = (select ciphertext from api_key where id = ${victim.keyId}) where id = ${thief.keyId}`);
    await assert.rejects(deliveryKeyOf(database(), thief.watcherId, noon));
    assert.equal(await deliveryKeyOf(database(), victim.watcherId, noon), victim.key);
  });

  test('a rotated key and its successor are both valid during the overlap, and webhooks carry the new one at once', async () => {
    const old = await issue('acme');
    const next = await rotate(old.keyId, later(1_000), 60_000);
    assert.equal(next.watcherId, old.watcherId);
    assert.equal(await deliveryKeyOf(database(), old.watcherId, later(1_000)), next.key);
    assert.equal(await findBy(database(), old.key, later(60_999)), old.watcherId);
    assert.equal(await findBy(database(), old.key, later(61_000)), undefined);
    assert.equal(await findBy(database(), next.key, later(61_000)), old.watcherId);
    assert.deepEqual((await findKey(database(), old.keyId))?.revokedAt, later(61_000));
  });

  test('webhooks carry the newest valid key, and none when all are revoked', async () => {
    const first = await issue('acme');
    const second = await issue('acme', later(1));
    assert.equal(await deliveryKeyOf(database(), first.watcherId, later(1)), second.key);
    await revokeKey(database(), second.keyId, later(2));
    assert.equal(await deliveryKeyOf(database(), first.watcherId, later(2)), first.key);
    await revokeKey(database(), first.keyId, later(3));
    assert.equal(await deliveryKeyOf(database(), first.watcherId, later(3)), undefined);
  });

  test('a revocation takes effect whatever the time is, and a later one does not change its time', async () => {
    const { key, keyId } = await issue('acme');
    assert.equal(await revokeKey(database(), keyId, later(5)), true);
    for (const now of [noon, later(4), later(5)]) assert.equal(await findBy(database(), key, now), undefined);
    await revokeKey(database(), keyId, later(500));
    assert.deepEqual((await findKey(database(), keyId))?.revokedAt, later(5));
    assert.equal(await revokeKey(database(), 'no such id', noon), false);
  });

  test('a key that is revoked, or rotated without overlap, is refused at once, even by clocks a second behind', async () => {
    const [ended, rotated] = [await issue('acme'), await issue('acme')];
    const { revokedAt } = await endKey(database(), ended.keyId, later(2_000));
    await rotate(rotated.keyId, later(2_000), 0);
    for (const { key, keyId } of [ended, rotated]) {
      assert.equal(await findBy(database(), key, later(1_000)), undefined);
      assert.deepEqual((await findKey(database(), keyId))?.revokedAt, revokedAt);
    }
    await assert.rejects(endKey(database(), 'no such id', noon), { code: 'not_found' });
  });

  test('unknown and revoked keys cannot be rotated, and a watcher needs a name', async () => {
    const { keyId } = await issue('acme');
    await revokeKey(database(), keyId, later(1));
    const hasCode = (code: string) => (error: unknown) => error instanceof Fault && error.code === code;
    await assert.rejects(rotate('no such id', later(2), 0), hasCode('not_found'));
    await assert.rejects(rotate(keyId, later(2), 0), { code: 'conflict', message: /has already ended/ });
    await assert.rejects(issue('  '), hasCode('invalid'));
    assert.equal((await listKeys(database(), 10)).length, 1);
  });

  test('of concurrent rotations of one key the first succeeds, and the others say that it was rotated', async () => {
    const { keyId, watcherId } = await issue('acme');
    const outcomes = await Promise.allSettled(Array.from({ length: 6 }, () => rotate(keyId, noon, 60_000)));
    const refusals = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason] : []));
    assert.equal(refusals.length, 5);
    for (const refusal of refusals) {
      assert.ok(refusal instanceof Fault && refusal.code === 'conflict');
      assert.match(refusal.message, /was already rotated, and stays valid until/);
    }
    assert.equal((await listWatcherKeys(database(), watcherId, 10)).length, 2);
  });

  test('a rotation that fails leaves no key behind', async () => {
    const { keyId } = await issue('acme');
    await assert.rejects(rotate(keyId, noon, Number.MAX_VALUE));
    assert.deepEqual(
      (await listKeys(database(), 10)).map(({ id, revokedAt }) => [id, revokedAt]),
      [[keyId, undefined]],
    );
  });
});
