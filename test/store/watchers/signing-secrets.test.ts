import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import { deriveKeyRing } from '../../../src/domain/key-ring.ts';
import { secretText } from '../../../src/domain/signature.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { ensureWatcher } from '../../../src/store/watchers/api-keys.ts';
import { listSigningSecrets, rotateSigningSecret } from '../../../src/store/watchers/signing-secrets.ts';
import { later, noon } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';

const keyRing = deriveKeyRing(Buffer.alloc(32, 7));

onSampledDatabase(import.meta.url, ({ database }) => {
  const store = () => ({ database: database(), keyRing });
  const watcher = (name = 'acme') => ensureWatcher(database(), name, noon);
  const list = (watcherId: number, now = noon) => listSigningSecrets(store(), watcherId, now);
  const rotate = (watcherId: number, now: Date, overlapMs: number) =>
    rotateSigningSecret(store(), watcherId, { now, overlapMs });
  const numbers = (secrets: { number: number; endsAt: Date | undefined }[]) =>
    secrets.map(({ number, endsAt }) => [number, endsAt?.getTime()]);

  test('the first read creates one secret for a watcher, even with concurrent reads', async () => {
    const [acme, other] = [await watcher(), await watcher('other')];
    const asked = await Promise.all(Array.from({ length: 6 }, () => list(acme)));
    const texts = asked.flat().map(({ keys }) => secretText(keys));
    assert.equal(texts.length, 6);
    assert.equal(new Set(texts).size, 1);
    const [theirs] = await list(other);
    assert.ok(theirs !== undefined && secretText(theirs.keys) !== texts[0]);
    assert.deepEqual(numbers(await list(acme, later(1e12))), [[1, undefined]]);
  });

  test('a rotated secret and its successor are both valid during the overlap, newest first', async () => {
    const acme = await watcher();
    const [first] = await list(acme);
    const rotated = await rotate(acme, later(1_000), 60_000);
    assert.deepEqual(numbers(rotated), [
      [2, undefined],
      [1, later(61_000).getTime()],
    ]);
    assert.deepEqual(rotated[1]?.keys.hmacKey.export(), first?.keys.hmacKey.export());
    assert.notDeepEqual(rotated[0]?.keys.hmacKey.export(), first?.keys.hmacKey.export());
    assert.deepEqual(numbers(await list(acme, later(60_999))), numbers(rotated));
    assert.deepEqual(numbers(await list(acme, later(61_000))), [[2, undefined]]);
  });

  test('a later rotation does not extend a former secret, and one without overlap ends all of them', async () => {
    const acme = await watcher();
    await rotate(acme, noon, 1_000);
    const overlapping = await rotate(acme, later(1), 60_000);
    assert.deepEqual(numbers(overlapping), [
      [3, undefined],
      [2, later(60_001).getTime()],
      [1, later(1_000).getTime()],
    ]);
    assert.deepEqual(numbers(await rotate(acme, later(2), 0)), [[4, undefined]]);
  });

  test('at most five secrets are valid at a time, and ended ones are deleted', async () => {
    const acme = await watcher();
    for (let count = 1; count < 5; count += 1) await rotate(acme, noon, 1_000);
    await assert.rejects(
      rotate(acme, noon, 1_000),
      (error: unknown) => error instanceof Fault && error.code === 'conflict',
    );
    assert.equal((await list(acme)).length, 5);
    await rotate(acme, later(1_000), 1_000);
    const stored = await database().query<{ number: number }>(
      sql`select number from signing_secret where watcher_id = ${acme} order by number`,
    );
    assert.deepEqual(
      stored.map(({ number }) => number),
      [5, 6],
    );
  });

  test('concurrent rotations of one watcher run one after the other', async () => {
    const acme = await watcher();
    await list(acme);
    await Promise.all([rotate(acme, noon, 1_000), rotate(acme, noon, 1_000), rotate(acme, noon, 1_000)]);
    assert.deepEqual(
      (await list(acme)).map(({ number }) => number),
      [4, 3, 2, 1],
    );
  });

  test('a secret that was moved to another row cannot be decrypted, and none is stored unencrypted', async () => {
    const [victim, thief] = [await watcher('victim'), await watcher('thief')];
    const [secret] = await list(victim);
    await list(thief);
    const [row] = await database().query<{ ciphertext: Uint8Array }>(
      sql`select ciphertext from signing_secret where watcher_id = ${victim}`,
    );
    assert.ok(secret !== undefined && row !== undefined);
    assert.ok(!Buffer.from(row.ciphertext).includes(secret.keys.hmacKey.export()));
    await database().query(
      sql`update signing_secret set ciphertext = ${row.ciphertext} where watcher_id = ${thief}`,
    );
    await assert.rejects(list(thief), /does not open/);
    assert.equal((await list(victim)).length, 1);
  });
});
