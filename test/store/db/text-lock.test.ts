import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sql } from '../../../src/store/db/sql.ts';
import { lockText } from '../../../src/store/db/text-lock.ts';
import { onPostgres } from '../../kit/each-database.ts';

const SPACE = 0x6362_0001;
const ONE = 'https://a.example/27513';
const TWO = 'https://b.example/139770';

onPostgres(({ database, place }) => {
  test('texts of two watchers have separate locks, although 32 bits of a hash are equal', async () => {
    const [hashes] = await database().query<{ are_equal: boolean }>(sql`
      select hashtext(${`1 ${ONE}`}) = hashtext(${`2 ${TWO}`}) as are_equal`);
    assert.ok(hashes?.are_equal);
    const other = await place().open();
    const lockInTime = (watcherId: number, text: string) =>
      other.transaction(async (tx) => {
        await tx.query(sql`set local lock_timeout = '3s'`);
        await lockText(tx, SPACE, watcherId, text);
      });
    await database().transaction(async (tx) => {
      await lockText(tx, SPACE, 1, ONE);
      await lockInTime(2, TWO);
      await assert.rejects(lockInTime(1, ONE), { code: 'unavailable' });
    });
    await other.close();
  });
});
