/**
 * The embedded database survives a loss of power: what is committed was flushed to the disk before.
 */
import assert from 'node:assert/strict';
import fs from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { openDatabase } from '../../../src/store/db/open.ts';
import { sql } from '../../../src/store/db/sql.ts';

/** Calls `flushing` with the path of each file and folder that this process flushes. */
function watchFlushes(t: TestContext, flushing: (file: string) => void): void {
  const { fsyncSync } = fs;
  fs.fsyncSync = (descriptor) => {
    flushing(fs.readlinkSync(`/proc/self/fd/${descriptor}`));
    fsyncSync(descriptor);
  };
  syncBuiltinESMExports();
  t.after(() => {
    fs.fsyncSync = fsyncSync;
    syncBuiltinESMExports();
  });
}

async function openFresh(t: TestContext) {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'chainbell-durable-'));
  t.after(() => rm(dataDir, { recursive: true, force: true }));
  const database = await openDatabase({ url: '', dataDir });
  t.after(() => database.close());
  await database.query(sql`create table kept (number integer)`);
  return { database, folder: path.join(dataDir, 'database') };
}

test('each commit flushes the write-ahead log, and a checkpoint the data and the names of its files', async (t) => {
  const { database, folder } = await openFresh(t);
  const flushed: string[] = [];
  watchFlushes(t, (file) => flushed.push(path.relative(folder, file)));
  const flushedBy = async (work: () => Promise<unknown>) => {
    flushed.length = 0;
    await work();
    return flushed;
  };
  for (let number = 0; number < 3; number += 1) {
    const files = await flushedBy(() => database.query(sql`insert into kept (number) values (${number})`));
    assert.ok(
      files.some((file) => file.startsWith('pg_wal/0000')),
      files.join(),
    );
  }
  assert.deepEqual(await flushedBy(() => database.query(sql`select from kept`)), []);
  const files = await flushedBy(() => database.query(sql`checkpoint`));
  for (const part of [/^base\/\d+\/\d+$/, /^global\/pg_control$/])
    assert.ok(
      files.some((file) => part.test(file)),
      `${part}: ${files.join()}`,
    );
});

test('a commit that the disk did not take is refused, and the database goes on with all that was committed', async (t) => {
  const { database } = await openFresh(t);
  await database.query(sql`insert into kept (number) values (1)`);
  let isBroken = true;
  watchFlushes(t, (file) => {
    if (isBroken && file.includes('pg_wal')) throw new Error('EIO');
  });
  await assert.rejects(database.query(sql`insert into kept (number) values (2)`), { code: 'unavailable' });
  isBroken = false;
  await database.query(sql`insert into kept (number) values (3)`);
  const rows = await database.query<{ number: number }>(
    sql`select number from kept where number <> 2 order by number`,
  );
  assert.deepEqual(rows, [{ number: 1 }, { number: 3 }]);
});
