import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Db } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { listPendingAbove } from '../../../src/store/delivery/pending.ts';
import { addWatchers, watchAddress } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { countRead, insertNotifications, planTest } from '../../kit/many-notifications.ts';

onSampledDatabase(import.meta.url, ({ database }) => {
  test(
    'the look for watchers above a limit counts a bounded number of what each has, and reads nothing of the others',
    planTest,
    async () => {
      await addWatchers(database(), ...Array.from({ length: 50 }, (_, index) => index + 4));
      for (const [watcherId, count] of [
        [1, 20_000],
        [2, 30],
        [3, 10],
      ] as const)
        await insertNotifications(database(), {
          ...{ records: [await watchAddress(database(), { watcherId })], count },
        });
      await database().query(sql`analyze`);
      let read = 0;
      const counting: Db = {
        async query(statement) {
          read += await countRead(database(), statement, 'queue');
          return database().query(statement);
        },
      };
      assert.deepEqual(await listPendingAbove(counting, 10, 100), [
        { watcherId: 1, pending: 100 },
        { watcherId: 2, pending: 30 },
      ]);
      assert.ok(read > 0 && read < 1_000, `it read ${read} rows`);
      assert.deepEqual(await listPendingAbove(database(), 30), [{ watcherId: 1, pending: 20_000 }]);
      assert.deepEqual(await listPendingAbove(database(), 20_000), []);
    },
  );
});
