import assert from 'node:assert/strict';
import { test } from 'node:test';
import { insertChain } from '../../../src/store/blocks/blocks.ts';
import { noteTimeline } from '../../../src/store/blocks/commit-lock.ts';
import { writeDeferred } from '../../../src/store/blocks/write-deferred.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { deferralLimits } from '../../../src/store/matching/deferred.ts';
import { attemptDue } from '../../kit/attempts.ts';
import {
  hashOf,
  headerOf,
  later,
  listNotifications,
  mine,
  noon,
  transferOf,
  watchAddress,
} from '../../kit/chain-story.ts';
import { onPostgres } from '../../kit/each-database.ts';

/** Notes the timeline of another server, whose standby this one would be. */
const failOver = (database: Database) => database.query(sql`update chain set timeline = '0000ABCD'`);

onPostgres(({ database }) => {
  test('after a fail-over, new notifications have ids that no lost commit has given out', async () => {
    assert.equal(await noteTimeline(database()), undefined);
    await insertChain(database(), 1, hashOf(1));
    await watchAddress(database());
    for (let round = 0; round < 2; round += 1) assert.equal(await noteTimeline(database()), undefined);
    await mine(database(), headerOf(1), [transferOf()]);
    assert.equal(await noteTimeline(database()), undefined);
    await failOver(database());
    const after = Number(await noteTimeline(database()));
    assert.ok(after >= 1_000_000, String(after));
    assert.equal(await noteTimeline(database()), undefined);
    await mine(database(), headerOf(2), [transferOf()]);
    const ids = (await listNotifications(database())).map(({ id }) => Number(id));
    assert.deepEqual(ids.slice(1), [after + 1]);
    assert.ok((ids[0] ?? 0) < 1_000_000, String(ids));
    // Without another look, a commit notices it, and so does the writer of deferred notifications.
    await failOver(database());
    const committed = await mine(database(), headerOf(3), [transferOf()], {
      deferral: { recordsMin: 0, ownRowsMax: 1_000_000, allRowsMax: 1_000_000, rowsAtOnce: 0, rowsMax: 250 },
    });
    assert.ok(committed.outcome === 'committed' && committed.hasDeferred);
    const later = committed.idsAfter ?? 0;
    assert.ok(later > after + 1_000_000, String(later));
    await failOver(database());
    await writeDeferred(database(), {
      confirmations: 0,
      now: noon,
      sortWatchers: (ids) => ids,
      limits: deferralLimits,
    });
    const last = (await listNotifications(database())).map(({ id }) => Number(id)).at(-1);
    assert.ok((last ?? 0) > later + 1_000_000, String(last));
  });

  test('after a fail-over, new attempts have ids that no lost commit has given out', async () => {
    await insertChain(database(), 1, hashOf(1));
    await noteTimeline(database());
    await watchAddress(database());
    await mine(database(), headerOf(1), [transferOf(), transferOf()]);
    await attemptDue(database(), { now: noon, succeeds: true });
    await failOver(database());
    await mine(database(), headerOf(2), [transferOf()]);
    await attemptDue(database(), { now: noon, succeeds: true });
    const attempts = await database().query<{ id: number }>(sql`select id from delivery_attempt order by id`);
    const [first = 0, second = 0, third = 0] = attempts.map(({ id }) => id);
    assert.equal(attempts.length, 3);
    assert.ok(second === first + 1 && third > second + 1_000_000, `${third}`);
  });

  test('after a fail-over, a transfer that may have been sent under a lost lease gets a removal notice', async () => {
    await insertChain(database(), 1, hashOf(1));
    await noteTimeline(database());
    await watchAddress(database(), { settings: { removed: true } });
    await mine(database(), headerOf(1), []);
    await mine(database(), headerOf(2), [transferOf()]);
    await failOver(database());
    await mine(database(), headerOf(2, 1, 1), [], {
      reorg: { ancestorNumber: 1, readNow: () => later(10) },
      now: later(10),
    });
    const rows = await listNotifications(database());
    assert.deepEqual(
      rows.map(({ revision, state }) => [revision, state]),
      [[1, 'waiting']],
    );
  });

  test('a server that hides its write-ahead log, as some hosted ones do, is not asked again by commits', async () => {
    await insertChain(database(), 1, hashOf(1));
    await noteTimeline(database());
    await failOver(database());
    const hiding: Database = {
      ...database(),
      query: (statement) =>
        statement.text.includes('pg_walfile_name')
          ? Promise.reject(Object.assign(new Error('not supported'), { code: '0A000' }))
          : database().query(statement),
    };
    assert.equal(await noteTimeline(hiding), 'hidden');
    assert.deepEqual(await database().query(sql`select timeline from chain`), [{ timeline: null }]);
    const committed = await mine(database(), headerOf(1), [transferOf()]);
    assert.equal(committed.outcome === 'committed' && committed.idsAfter, undefined);
    assert.deepEqual(await database().query(sql`select timeline from chain`), [{ timeline: null }]);
  });
});
