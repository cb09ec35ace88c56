import assert from 'node:assert/strict';
import { readdir } from 'node:fs/promises';
import path from 'node:path';
import { test } from 'node:test';
import { sql } from '../../../src/store/db/sql.ts';
import { createTestDatabase } from '../../kit/database.ts';

/** Files of the write-ahead log, 16 MiB each, plus two folders. */
const FILES_MAX = 14;
/** Writes of one megabyte each, more than those files can hold. */
const WRITES = 350;

test('the write-ahead log of the embedded database stays bounded while the database is open', async () => {
  await using place = await createTestDatabase('embedded');
  const database = await place.open();
  for (let write = 0; write < WRITES; write += 1)
    await database.query(sql`select pg_logical_emit_message(false, 'test', repeat('x', 1000000))`);
  const files = await readdir(path.join(place.dataDir, 'database', 'pg_wal'));
  assert.ok(files.length <= FILES_MAX, `${files.length} files`);
});
