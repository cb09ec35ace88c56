import assert from 'node:assert/strict';
import { it } from 'node:test';
import type { Hex } from '../../../src/core/hex.ts';
import { bytesOf, listOf } from '../../../src/store/db/arrays.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { onEachDatabase } from '../../kit/each-database.ts';

onEachDatabase(({ database }) => {
  const readBytes = async (values: readonly (Hex | undefined)[]) => {
    const rows = await database().query<{ value: string | null }>(sql`
      select encode(value, 'hex') as value from unnest(${bytesOf(values)}::bytea[]) with ordinality as t (value, position)
      order by position`);
    return rows.map(({ value }) => value);
  };

  it('passes bytes of any length, and null, in order', async () => {
    const long: Hex = `0x${'fe'.repeat(70_000)}`;
    assert.deepEqual(await readBytes(['0x00ff', undefined, '0x', long, '0x5c22']), [
      '00ff',
      null,
      '',
      long.slice(2),
      '5c22',
    ]);
  });

  it('passes an empty list of bytes', async () => {
    assert.deepEqual(await readBytes([]), []);
  });

  it('passes numbers beyond the range of JavaScript numbers, and words', async () => {
    const [row] = await database().query(sql`
      select (${listOf([2n ** 256n - 1n, 1n])}::numeric[])[1]::text as largest,
        (${listOf(['token', 'internal'])}::text[])[2] as word, cardinality(${listOf([])}::bigint[]) as none`);
    assert.deepEqual(row, { largest: String(2n ** 256n - 1n), word: 'internal', none: 0 });
  });
});
