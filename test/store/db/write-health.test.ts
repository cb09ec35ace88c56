import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import { type Database, databaseError } from '../../../src/store/db/db.ts';
import { migrate } from '../../../src/store/db/migrate.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { type Sql, sql } from '../../../src/store/db/sql.ts';
import { createWriteHealth } from '../../../src/store/db/write-health.ts';
import { createTestClock } from '../../kit/clock.ts';
import { onEachDatabase, onPostgres } from '../../kit/each-database.ts';
import { mountDisk } from '../../kit/full-disk.ts';

const QUIET_MS = 5_000;
const QUIET_AGAIN_MS = 20_000;
const write = sql`update clock_state set probed_at = null`;
const read = sql`select 1`;
const disk = mountDisk();
disk?.[Symbol.dispose]();

/** A database whose statements, or those of them with such a text, fail with `code` while it is set. */
function failing(database: Database) {
  let code: string | undefined;
  let refused = /./;
  const check = (statement: Sql) => {
    if (code === undefined || !refused.test(statement.text)) return statement;
    throw databaseError(Object.assign(new Error('it failed'), { code }));
  };
  const wrapped: Database = {
    ...database,
    query: async (statement) => database.query(check(statement)),
    transaction: (work) =>
      database.transaction((tx) => work({ ...tx, query: async (statement) => tx.query(check(statement)) })),
  };
  return {
    wrapped,
    fail(next: string | undefined, text = /./) {
      code = next;
      refused = text;
    },
  };
}

onEachDatabase(({ database }) => {
  function startStory() {
    const clock = createTestClock();
    const { wrapped, fail } = failing(database());
    const health = createWriteHealth(wrapped, clock);
    const parts = async () => (await health.failures()).map(({ part }) => part);
    return { clock, fail, health, parts };
  }

  test('a write that fails because of server or disk is reported, with advice for each cause', async () => {
    const { health, fail } = startStory();
    const api = health.watch('api');
    for (const [code, advice] of [
      ['53100', /disk is full/],
      ['25006', /may be a standby\. Point database\.url, and database\.sessionUrl/],
      ['28P01', /user and password/],
      ['42501', /Grant the privilege to the role/],
      ['53300', /max_connections/],
      ['54000', /server's log/],
      ['57P03', /Check that it runs/],
      ['08006', /Check that it runs/],
      ['58030', /server's log/],
    ] as const) {
      fail(code);
      await assert.rejects(api.query(write));
      const [failure, ...others] = await health.failures();
      assert.match(failure?.message ?? '', advice, code);
      assert.deepEqual(others, []);
      fail(undefined);
      await api.transaction((tx) => tx.query(write));
      assert.deepEqual(await health.failures(), []);
    }
  });

  test('a conflict, a lock timeout, a constraint violation or a failed read is not reported', async () => {
    const { health, fail, parts } = startStory();
    const api = health.watch('api');
    for (const code of ['40001', '40P01', '55P03', '57014', '23505', '22003']) {
      fail(code);
      await assert.rejects(api.query(write));
    }
    fail('53100');
    await assert.rejects(api.query(read));
    fail(undefined);
    const refuse = async () => {
      throw new Fault('unavailable', 'a node does not answer');
    };
    await assert.rejects(api.transaction((tx) => tx.query(write).then(refuse)));
    assert.deepEqual(await parts(), []);
  });

  test('only a write of the same part clears a failure, not a read or another part', async () => {
    const { health, fail, parts } = startStory();
    const [follower, api] = [health.watch('follower'), health.watch('api')];
    fail('53100');
    await assert.rejects(follower.transaction((tx) => tx.query(write)));
    fail(undefined);
    await follower.query(read);
    await follower.transaction((tx) => tx.query(read));
    await api.query(write);
    assert.deepEqual(await parts(), ['follower']);
    await follower.query(write);
    assert.deepEqual(await parts(), []);
  });

  test('a write that changes nothing clears no failure, and one that a probe cleared stays known', async () => {
    const { health, fail, parts, clock } = startStory();
    const follower = health.watch('follower');
    const failOnce = async () => {
      fail('53100');
      await assert.rejects(follower.query(write));
      fail(undefined);
    };
    const nothing = sql`with changed as (update clock_state set probed_at = null where false returning 1) select from changed`;
    const changeNothing = async () => {
      await follower.query(nothing);
      await follower.transaction((tx) => tx.query(nothing));
    };
    await failOnce();
    const [failure] = await health.failures();
    clock.advance(1_000);
    await changeNothing();
    assert.deepEqual(await health.failures(), [failure]);
    clock.advance(QUIET_MS);
    assert.deepEqual(await parts(), []);
    await changeNothing();
    await failOnce();
    clock.advance(QUIET_MS);
    assert.deepEqual(await parts(), ['follower']);
    await follower.query(write);
    assert.deepEqual(await parts(), []);
  });

  test('a probe clears the failure of a part that has nothing more to write', async () => {
    const { health, fail, parts, clock } = startStory();
    const api = health.watch('api');
    fail('53100');
    await assert.rejects(api.query(write));
    clock.advance(QUIET_MS);
    assert.deepEqual(await parts(), ['api']);
    fail(undefined);
    clock.advance(1_000);
    assert.deepEqual(await parts(), []);
  });

  test('where a role may not create temporary tables, the probe only writes a row', async () => {
    const { clock, fail, health, parts } = startStory();
    fail('53100');
    await assert.rejects(health.watch('blocks').query(write));
    fail('42501', /create temporary table/);
    clock.advance(QUIET_MS);
    assert.deepEqual(await parts(), []);
    const [state] = await database().query<{ probed_at: Date }>(sql`select probed_at from clock_state`);
    assert.deepEqual(state?.probed_at, clock.now());
  });

  test('a part that fails again after a probe cleared it is probed later, until a write of it succeeds', async () => {
    const { fail, health, parts, clock } = startStory();
    const prices = health.watch('prices');
    const failOnce = async () => {
      fail('53100');
      await assert.rejects(prices.query(write));
      fail(undefined);
    };
    await failOnce();
    clock.advance(QUIET_MS);
    assert.deepEqual(await parts(), []);
    for (let times = 0; times < 2; times += 1) {
      await failOnce();
      clock.advance(QUIET_AGAIN_MS - 1);
      assert.deepEqual(await parts(), ['prices']);
    }
    await prices.query(write);
    await failOnce();
    clock.advance(QUIET_MS);
    assert.deepEqual(await parts(), []);
  });

  test('a probe does not clear the failure of a part that still tries and fails', async () => {
    const { health, fail, parts, clock } = startStory();
    const follower = health.watch('follower');
    for (let tries = 0; tries < 3; tries += 1) {
      fail('53100');
      await assert.rejects(follower.query(write));
      fail(undefined);
      clock.advance(QUIET_MS - 1);
      assert.deepEqual(await parts(), ['follower']);
    }
  });
});

onPostgres(({ place }) => {
  test('a read-only server is reported, and the probe does not clear it', async () => {
    const readOnly = `${place().url}?options=${encodeURIComponent('-c default_transaction_read_only=on')}`;
    const database = await openDatabase({ url: readOnly, dataDir: place().dataDir });
    const clock = createTestClock();
    const health = createWriteHealth(database, clock);
    try {
      await assert.rejects(health.watch('follower').query(write), { code: 'unavailable' });
      clock.advance(QUIET_MS);
      assert.match((await health.failures())[0]?.message ?? '', /read-only/);
    } finally {
      await database.close();
    }
  });
});

test('a full disk is reported, also by the probe, until there is space', {
  skip: disk === undefined && 'needs root to mount a file system',
}, async () => {
  using place = mountDisk();
  assert.ok(place !== undefined);
  const database = await openDatabase({ url: '', dataDir: place.folder });
  try {
    await migrate(database);
    await database.query(sql`create table filler (text text)`);
    const store = sql`insert into filler select repeat(md5(random()::text), 30) from generate_series(1, 1000)`;
    const clock = createTestClock();
    const health = createWriteHealth(database, clock);
    const follower = health.watch('follower');
    await follower.query(store);
    place.fill();
    await assert.rejects(follower.query(store), { code: 'unavailable' });
    assert.match((await health.failures())[0]?.message ?? '', /The disk is full/);
    // A small write still fits, so the probe has to write more.
    await health.watch('api').query(write);
    clock.advance(QUIET_MS);
    assert.equal((await health.failures()).length, 1);
    place.free();
    clock.advance(1_000);
    assert.deepEqual(await health.failures(), []);
    await follower.query(store);
  } finally {
    await database.close();
  }
});
