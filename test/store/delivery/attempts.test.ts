import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database, Db } from '../../../src/store/db/db.ts';
import { migrate } from '../../../src/store/db/migrate.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { type Sql, sql } from '../../../src/store/db/sql.ts';
import {
  createSafeWatermark,
  listAttempts,
  listAttemptsBetween,
} from '../../../src/store/delivery/attempts.ts';
import { noon } from '../../kit/chain-story.ts';
import { createTestDatabase } from '../../kit/database.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { startRestartingServer } from '../../kit/postgres-server.ts';
import { waitUntil } from '../../kit/wait.ts';

type Parts = { shardId?: number; notificationId?: number };

async function insertAttempt(db: Db, { shardId = 1, notificationId = 1 }: Parts = {}): Promise<number> {
  const [row] = await db.query<{ id: number }>(sql`
    insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome, status, response)
    values (${shardId}, ${notificationId}, ${noon}, 7, 'http_5xx', 503, 'down') returning id`);
  return row?.id ?? 0;
}

/** Takes the ids above this one back, as the fail-over to a standby does that lacks their commits. */
async function takeBack(db: Db, id: number): Promise<void> {
  await db.query(sql`delete from delivery_attempt where id > ${id}`);
  await db.query(sql`select setval('delivery_attempt_id_seq', ${id})`);
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('the attempts of a notification are listed newest first, in pages', async () => {
    const ids = [];
    for (let count = 0; count < 3; count += 1) ids.push(await insertAttempt(database()));
    await insertAttempt(database(), { notificationId: 2 });
    await insertAttempt(database(), { shardId: 2 });
    const [a, b, c] = ids;
    const page = await listAttempts(database(), 1, 1, { before: undefined, limit: 2 });
    assert.deepEqual(
      page.map(({ id }) => id),
      [c, b],
    );
    const rest = await listAttempts(database(), 1, 1, { before: b, limit: 2 });
    assert.deepEqual(rest, [
      {
        id: a,
        notificationId: 1,
        revision: 0,
        startedAt: noon,
        durationMs: 7,
        requestCount: 1,
        outcome: 'http_5xx',
        status: 503,
        response: 'down',
      },
    ]);
  });

  test('the attempts of a watcher between two ids are listed oldest first', async () => {
    const ids = [];
    for (let count = 0; count < 5; count += 1) ids.push(await insertAttempt(database()));
    await insertAttempt(database(), { shardId: 2 });
    const [a = 0, b, c, d = 0] = ids;
    const between = { after: a, upTo: d, limit: 2 };
    const found = await listAttemptsBetween(database(), 1, between);
    assert.deepEqual(
      found.map(({ id }) => id),
      [b, c],
    );
  });

  test('without open transactions the safe watermark is the id of the last attempt, or 0', async () => {
    const safeWatermark = createSafeWatermark(database());
    assert.equal(await safeWatermark(), 0);
    const id = await insertAttempt(database());
    assert.equal(await safeWatermark(), id);
    assert.equal(await safeWatermark(), id);
  });
});

onPostgres(({ database }) => {
  test('the safe watermark stays below an attempt that an open transaction may still commit', async () => {
    const before = await insertAttempt(database());
    const safeWatermark = createSafeWatermark(database());
    assert.equal(await safeWatermark(), before);
    let slow = 0;
    let fast = 0;
    await database().transaction(async (tx) => {
      slow = await insertAttempt(tx);
      fast = await insertAttempt(database());
      assert.equal(await safeWatermark(), before);
      // A later transaction that commits doesn't advance it either.
      await insertAttempt(database());
      assert.equal(await safeWatermark(), before);
    });
    assert.ok(slow < fast);
    await safeWatermark();
    const upTo = await safeWatermark();
    assert.ok(upTo !== undefined && upTo > fast);
    const found = await listAttemptsBetween(database(), 1, { after: before, upTo, limit: 10 });
    assert.deepEqual(found.map(({ id }) => id).slice(0, 2), [slow, fast]);
  });

  test('the safe watermark does not wait for transactions that write other tables or another database', async () => {
    // Created from the same template, so its tables have the same OIDs.
    await using elsewhere = await createTestDatabase('postgres');
    const other = await elsewhere.open();
    await other.transaction(async (writing) => {
      await insertAttempt(writing);
      await database().transaction(async (tx) => {
        await tx.query(sql`select from delivery_attempt`);
        await tx.query(sql`insert into watcher (name, created_at) values ('slow', now())`);
        const safeWatermark = createSafeWatermark(database());
        assert.equal(await safeWatermark(), 0);
        const id = await insertAttempt(database());
        assert.equal(await safeWatermark(), id);
      });
    });
    await other.close();
  });

  test('the safe watermark does not wait for transactions that began after its first read', async () => {
    const safeWatermark = createSafeWatermark(database());
    const isOpen = Promise.withResolvers<number>();
    const isRead = Promise.withResolvers<void>();
    const older = database().transaction(async (tx) => {
      isOpen.resolve(await insertAttempt(tx));
      await isRead.promise;
    });
    const id = await isOpen.promise;
    assert.equal(await safeWatermark(), undefined);
    await database().transaction(async (tx) => {
      await insertAttempt(tx);
      isRead.resolve();
      await older;
      assert.equal(await safeWatermark(), id);
    });
  });

  test('an attempt whose transaction is rolled back does not hold up the safe watermark', async () => {
    const safeWatermark = createSafeWatermark(database());
    await database()
      .transaction(async (tx) => {
        await insertAttempt(tx);
        throw new Error('rolled back');
      })
      .catch(() => {});
    const last = await insertAttempt(database());
    assert.equal(await safeWatermark(), last);
  });

  test('if ids were taken back, the safe watermark does not pass attempts that get them again', async () => {
    const safeWatermark = createSafeWatermark(database());
    const [first, second] = [await insertAttempt(database()), await insertAttempt(database())];
    const third = await insertAttempt(database());
    assert.equal(await safeWatermark(), third);
    await takeBack(database(), first);
    await database().transaction(async (tx) => {
      assert.equal(await insertAttempt(tx), second);
      assert.equal(await safeWatermark(), undefined);
    });
    assert.equal(await safeWatermark(), second);
  });

  test('if ids were taken back while the safe watermark waited, it does not reach the id that it waited for', async () => {
    const safeWatermark = createSafeWatermark(database());
    const first = await insertAttempt(database());
    assert.equal(await safeWatermark(), first);
    const lost = database().transaction(async (tx) => {
      await insertAttempt(tx);
      await insertAttempt(tx);
      assert.equal(await safeWatermark(), first);
      throw new Error('lost');
    });
    await assert.rejects(lost, /lost/);
    await takeBack(database(), first);
    const again = await insertAttempt(database());
    assert.equal(await safeWatermark(), again);
  });

  test('if the server changes while the safe watermark looks, the look does not count', async () => {
    let asked = 0;
    const failing: Db = {
      ...database(),
      async query<Row>(statement: Sql) {
        const rows = await database().query<Row>(statement);
        asked += 1;
        return asked === 2 ? rows.map((row) => ({ ...row, server: 'another' })) : rows;
      },
    };
    const id = await insertAttempt(database());
    const safeWatermark = createSafeWatermark(failing);
    assert.equal(await safeWatermark(), undefined);
    assert.equal(await safeWatermark(), id);
  });

  test('on another server, the safe watermark does not pass attempts that get ids of the former one again', async () => {
    let isPromoted = false;
    const failing: Db = {
      ...database(),
      async query<Row>(statement: Sql) {
        const rows = await database().query<Row>(statement);
        return isPromoted
          ? rows.map((row) => ('server' in Object(row) ? { ...row, server: 'another' } : row))
          : rows;
      },
    };
    const safeWatermark = createSafeWatermark(failing);
    const [first, second] = [await insertAttempt(database()), await insertAttempt(database())];
    assert.equal(await safeWatermark(), second);
    await takeBack(database(), first);
    isPromoted = true;
    await database().transaction(async (tx) => {
      assert.equal(await insertAttempt(tx), second);
      for (let count = 0; count < 3; count += 1) await insertAttempt(database());
      assert.equal(await safeWatermark(), undefined);
    });
  });
});

test('after a crash of a PostgreSQL process, the safe watermark does not pass attempts that get lost ids again', async () => {
  await using parts = new AsyncDisposableStack();
  const server = await startRestartingServer();
  parts.defer(server.stop);
  const database = await openDatabase({ url: server.url, dataDir: '' });
  parts.defer(database.close);
  await migrate(database);
  const safeWatermark = createSafeWatermark(database);
  const [first, second] = [await insertAttempt(database), await insertAttempt(database)];
  assert.equal(await safeWatermark(), second);
  await crashProcess(database);
  await takeBack(database, first);
  await database.transaction(async (tx) => {
    assert.equal(await insertAttempt(tx), second);
    for (let count = 0; count < 3; count += 1) await insertAttempt(database);
    assert.equal(await safeWatermark(), undefined);
  });
});

/** Kills a process of the server, which then ends all others and recovers. Resolves when it answers again. */
async function crashProcess(database: Database): Promise<void> {
  const find = async () => {
    const [row] = await database.query<{ pid: number }>(
      sql`select pid from pg_stat_activity where backend_type = 'checkpointer'`,
    );
    return row?.pid;
  };
  const pid = await find();
  assert.ok(pid !== undefined);
  process.kill(pid, 'SIGKILL');
  const hasRecovered = async () => ![pid, undefined].includes(await find().catch(() => undefined));
  await waitUntil(hasRecovered, { describe: 'the server to recover' });
}
