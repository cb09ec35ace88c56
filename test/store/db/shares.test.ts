/**
 * The parts of a process on one database. However much work one of them has, the others are served.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { actFor } from '../../../src/core/account.ts';
import { type Share, type SharedDatabase, shares } from '../../../src/store/db/db.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createTestDatabase, databaseKinds, type TestDatabase } from '../../kit/database.ts';
import { waitUntil } from '../../kit/wait.ts';

for (const kind of databaseKinds) {
  describe(kind, () => {
    let place: TestDatabase;
    let database: SharedDatabase;
    const waits: { share: Share; waitMs: number }[] = [];
    before(async () => {
      place = await createTestDatabase(kind);
      database = await openDatabase({
        ...{ url: place.url, dataDir: place.dataDir, connections: { follower: 2, api: 3, delivery: 3 } },
        onWait: (share, waitMs) => waits.push({ share, waitMs }),
      });
    });
    after(async () => {
      await database.close();
      await place[Symbol.asyncDispose]();
    });

    // On a server, commands connect themselves, and this share is the API's.
    const parts = shares.filter((share) => kind === 'embedded' || share !== 'operator');
    for (const share of parts) {
      test(`every other share is served although more statements of ${share} wait than can run at once`, async () => {
        let done = 0;
        const slow = sql`select pg_sleep(0.02)`;
        const flood = Array.from({ length: 60 }, async () => {
          await database.for(share).query(slow);
          done += 1;
        });
        await waitUntil(() => done > 0);
        for (const other of parts.filter((one) => one !== share)) {
          await database.for(other).query(sql`select 1`);
          await database.for(other).transaction((tx) => tx.query(sql`select 1`));
        }
        assert.ok(done < 60);
        await Promise.all(flood);
      });
    }

    test('each wait for a connection is reported with its share', async () => {
      waits.length = 0;
      await database.for('follower').query(sql`select 1`);
      await database.for('settle').transaction((tx) => tx.query(sql`select 1`));
      await database.for('delivery').each(sql`select 1`, () => {});
      await database.for('api').script('select 1');
      assert.deepEqual(
        waits.map((wait) => wait.share),
        ['follower', 'settle', 'delivery', 'api'],
      );
      assert.ok(waits.every(({ waitMs }) => waitMs >= 0));
    });
  });
}

test('a process never opens more connections than configured', async () => {
  await using place = await createTestDatabase('postgres');
  const administrator = await place.open();
  const database = await openDatabase({
    ...{ url: place.url, dataDir: '', connections: { follower: 1, api: 2, delivery: 3 } },
  });
  const session = await database.session();
  let isOver = false;
  let most = 0;
  const flood = shares.flatMap((share) =>
    Array.from({ length: 20 }, (_, account) =>
      actFor(account, () => database.for(share).query(sql`select pg_sleep(0.05)`)),
    ),
  );
  const all = Promise.all(flood).then(() => {
    isOver = true;
  });
  await waitUntil(async () => {
    const [row] = await administrator.query<{ count: number }>(sql`
      select count(*) from pg_stat_activity
      where datname = current_database() and pid <> pg_backend_pid() and application_name = 'chainbell'`);
    most = Math.max(most, row?.count ?? 0);
    return isOver;
  });
  await all;
  await session.close();
  await database.close();
  assert.equal(most, 1 + 1 + 2 + 3 + 1);
});
