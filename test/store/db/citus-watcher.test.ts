/**
 * On Citus, what one watcher asks about its own records and notifications touches only its shard, so that a worker which answers nothing
 * holds up no other watcher. Without Citus, this file only runs the calls.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { listAttemptEvents } from '../../../src/store/delivery/attempt-events.ts';
import { listAttempts, listAttemptsBetween } from '../../../src/store/delivery/attempts.ts';
import { findAsDue } from '../../../src/store/delivery/due.ts';
import { countMatches, findLogged, listLog } from '../../../src/store/delivery/log.ts';
import type { LogFilter } from '../../../src/store/delivery/log-filter.ts';
import { countPending } from '../../../src/store/delivery/pending.ts';
import { listReceivers } from '../../../src/store/delivery/receivers.ts';
import { recordStatistics } from '../../../src/store/delivery/record-statistics.ts';
import { redeliverOne, redeliverStep } from '../../../src/store/delivery/redelivery.ts';
import { readStatistics } from '../../../src/store/delivery/statistics.ts';
import { defaultSettings, replaceSettings } from '../../../src/store/watchers/settings.ts';
import {
  deleteWatchedAddress,
  findWatchedAddress,
  listWatchedAddresses,
  updateWatchedAddress,
} from '../../../src/store/watchers/watched.ts';
import { changeWatchedAddresses } from '../../../src/store/watchers/watched-bulk.ts';
import { attemptDue } from '../../kit/attempts.ts';
import { headerOf, later, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { onPostgres } from '../../kit/each-database.ts';
import { planAll } from '../../kit/many-notifications.ts';

const WATCHER = 1;
const page = { order: 'newest first', after: undefined, limit: 10 } as const;

type Story = { recordId: string; id: number };
const log = (filter: LogFilter) => (database: Database) => listLog(database, WATCHER, filter, page);
const calls: Record<string, (database: Database, story: Story) => Promise<unknown>> = {
  'a page of the log': log({}),
  'pages of the log with filters': async (database) => {
    for (const filter of [
      { state: 'processed' },
      { status: 'delivered' },
      { hash: transferOf().txHash },
      { origin: 'https://receiver.example' },
      { lastAnswer: 'success' },
      { direction: 'in' },
      { fromBlock: 1, until: later(1) },
    ] as LogFilter[])
      await log(filter)(database);
  },
  'the log of a record': (database, { recordId }) => log({ recordIds: [recordId] })(database),
  'a count of matches': (database) => countMatches(database, WATCHER, {}),
  'one notification': (database, { id }) => findLogged(database, WATCHER, id),
  'its message': (database, { id }) => findAsDue(database, { shardId: WATCHER, id }),
  'its attempts': (database, { id }) => listAttempts(database, WATCHER, id, { before: undefined, limit: 10 }),
  'attempts by time': (database) =>
    listAttemptsBetween(database, WATCHER, { after: 0, upTo: 1e9, limit: 10 }),
  'events of attempts': (database) =>
    listAttemptEvents(database, WATCHER, { after: 0, upTo: 1e9, onlyFailures: false, limit: 10 }),
  'statistics of a record': (database, { recordId }) => recordStatistics(database, WATCHER, recordId, noon),
  statistics: (database) => readStatistics(database, { watcherId: WATCHER }, { period: '24h', now: noon }),
  'pending notifications': (database) => countPending(database, WATCHER),
  receivers: (database) => listReceivers(database, { watcherId: WATCHER, failing: false, limit: 10 }),
  'a redelivery': async (database, { id }) =>
    assert.equal(await redeliverOne(database, WATCHER, id, later(60_000)), true),
  'a redelivery of all': async (database) => {
    const [startedAt, now] = [later(60_000), later(60_000)];
    const step = await redeliverStep(database, WATCHER, {}, { startedAt, after: undefined, now });
    assert.equal(step.count, 1);
  },
  'a record': (database, { recordId }) => findWatchedAddress(database, WATCHER, recordId),
  records: (database) => listWatchedAddresses(database, WATCHER, { after: undefined, limit: 10 }),
  'an update': (database, { recordId }) =>
    updateWatchedAddress(
      database,
      WATCHER,
      recordId,
      { watchCoin: true },
      {
        origin: undefined,
        now: noon,
      },
    ),
  settings: (database, { recordId }) =>
    replaceSettings(database, WATCHER, recordId, {
      settings: { ...defaultSettings, confirmations: 1 },
      now: noon,
    }),
  'a bulk change': (database, { recordId }) =>
    database.transaction((tx) =>
      changeWatchedAddresses(
        tx,
        WATCHER,
        [{ operation: 'update', id: recordId, patch: { watchToken: true } }],
        {
          now: noon,
        },
      ),
    ),
  'a deletion': (database, { recordId }) => deleteWatchedAddress(database, WATCHER, recordId, { now: noon }),
};

onPostgres(({ database }) => {
  for (const [what, call] of Object.entries(calls))
    test(`${what} of a watcher touches only its shard`, async () => {
      const { id: recordId } = await watchAddress(database(), { watcherId: WATCHER });
      await watchAddress(database(), { watcherId: 2 });
      await mine(database(), headerOf(1), [transferOf()]);
      await attemptDue(database(), { now: noon, succeeds: true });
      const [row] = await database().query<{ id: number }>(
        sql`select id from notification where shard_id = ${WATCHER}`,
      );
      assert.ok(row !== undefined);
      const { plans, database: planned } = planAll(database());
      await call(planned, { recordId, id: row.id });
      assert.ok(plans.length > 0);
      assert.deepEqual(
        plans.filter((plan) => /Task Count: ([02-9]|\d\d)/.test(plan)),
        [],
      );
    });
});
