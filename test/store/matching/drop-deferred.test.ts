import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lockCommits } from '../../../src/store/blocks/commit-lock.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { deferralLimits, listDeferred, takeDeferred } from '../../../src/store/matching/deferred.ts';
import { beginRemoval, removeBatch } from '../../../src/store/watchers/watcher-removal.ts';
import { addWatchers, headerOf, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { onPostgres } from '../../kit/each-database.ts';
import { countWaiting } from '../../kit/in-line.ts';
import { waitUntil } from '../../kit/wait.ts';

onPostgres(({ database, place }) => {
  test('the last deferred matches of an address, written for one watcher and deleted for another at the same time, leave no transfers', async () => {
    await addWatchers(database(), 1, 2);
    for (const watcherId of [1, 1, 2, 2]) await watchAddress(database(), { watcherId });
    const deferral = { ...deferralLimits, recordsMin: 1, rowsAtOnce: 0 };
    await mine(database(), headerOf(1), [transferOf()], { deferral });
    await beginRemoval(database(), 1, noon);
    const other = await place().open();
    const isWaiting = async () => (await countWaiting(other)) > 0;
    let removal: ReturnType<typeof removeBatch> | undefined;
    await database().transaction(async (tx) => {
      await lockCommits(tx);
      const id = (await listDeferred(tx)).get(2) ?? 0;
      assert.equal((await takeDeferred(tx, id, { rowsMax: 2 }))?.recordIds.length, 2);
      removal = removeBatch(database(), 1);
      await waitUntil(isWaiting, { describe: 'the removal to wait for the notifications' });
    });
    assert.equal(await removal, 'more');
    assert.deepEqual(await database().query(sql`select from deferred_transfers`), []);
    while ((await removeBatch(database(), 1)) !== 'gone');
    assert.deepEqual(await database().query(sql`select from deferred_records`), []);
    await other.close();
  });
});
