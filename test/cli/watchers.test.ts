import assert from 'node:assert/strict';
import type { ChildProcessWithoutNullStreams } from 'node:child_process';
import { after, before, describe, test } from 'node:test';
import { issueKey } from '../../src/app/issue-keys.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { beginRemoval } from '../../src/store/watchers/watcher-removal.ts';
import { watchAddress } from '../kit/chain-story.ts';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { sampledKinds } from '../kit/each-database.ts';
import { insertNotifications } from '../kit/many-notifications.ts';
import { waitUntil } from '../kit/wait.ts';
import { chain, chainbell, startChainbell } from './chainbell.ts';

const ODD = 'it\'s\n\u001b[31m "odd"';
const SECRET = Buffer.alloc(32, 7).toString('base64');

for (const kind of sampledKinds(import.meta.url))
  describe(`watchers on the ${kind} database`, () => {
    let place: TestDatabase;
    /** For behavior that is the same on both databases. With the embedded one, each command takes seconds to start. */
    const testOnServer = (name: string, story: () => Promise<void>) => {
      if (kind === 'postgres') void test(name, story);
    };
    const env = () => ({
      ...{ ...chain, CHAINBELL_SECRET: SECRET, CHAINBELL_DATA_DIR: place.dataDir },
      ...(place.url !== '' && { CHAINBELL_DATABASE_URL: place.url }),
    });
    const run = (...words: string[]) => chainbell(place.dataDir, env(), 'watchers', ...words);
    /** Creates the watcher in this process, because a command on the embedded database takes seconds of processor time. */
    const create = async (database: Database, name: string) => {
      const keyRing = deriveKeyRing(Buffer.from(SECRET, 'base64'));
      await issueKey({ database, keyRing }, name, new Date());
    };
    before(async () => {
      place = await createTestDatabase(kind);
      const database = await place.open();
      for (const name of ['acme', 'odd', '1']) await create(database, name);
      // Earlier versions accepted such names.
      await database.query(sql`update watcher set name = ${ODD} where name = 'odd'`);
      await database.close();
    });
    after(() => place[Symbol.asyncDispose]());

    test('watchers are listed, each on one line whatever its name, and as JSON', async () => {
      // Two commands at once. One of them locks the folder of the embedded database first.
      const [{ out }, other] = await Promise.all([run('list'), run('list')]);
      assert.equal(other.out, out, other.err);
      assert.deepEqual(
        out.split('\n').map((line) => line.replace(/^(\d+) +\S+Z/, '$1').replaceAll(/ {2,}/g, '  ')),
        [
          'ID  CREATED  STATE  VALID KEYS  NAME',
          '1  active  1  acme',
          `2  active  1  ${String.raw`"it's\n\u001b[31m \"odd\""`}`,
          '3  active  1  1',
          '',
        ],
      );
      const listed = JSON.parse((await run('list', '--json')).out);
      assert.deepEqual(
        listed.map(({ id, name, state }: Record<string, unknown>) => [id, name, state]),
        [
          [1, 'acme', 'active'],
          [2, ODD, 'active'],
          [3, '1', 'active'],
        ],
      );
    });

    testOnServer(
      'a watcher is suspended and resumed by name or id, also repeatedly, and a name takes precedence over an id',
      async () => {
        for (const word of ['acme', 'acme', ODD]) {
          const { code, err } = await run('suspend', word);
          assert.equal(code, 0, err);
          assert.match(err, / is suspended: its keys are refused/);
        }
        await run('suspend', '1');
        const shown = JSON.parse((await run('show', '3', '--json')).out);
        assert.deepEqual([shown.name, shown.state, shown.keys.length], ['1', 'suspended', 1]);
        assert.match((await run('show', 'acme')).out, /^state {4}suspended since /m);
        for (const word of ['acme', '2', '2']) {
          const { code, err } = await run('resume', word);
          assert.deepEqual([code, / is active\n$/.test(err)], [0, true], err);
        }
      },
    );

    testOnServer('slices are set for a new watcher, raised later, shown, and never lowered', async () => {
      const keys = (...words: string[]) => chainbell(place.dataDir, env(), 'keys', 'create', ...words);
      const created = await keys('--watcher', 'large', '--slices', '4');
      assert.equal(created.code, 0, created.err);
      const other = await keys('--watcher', 'large', '--slices', '8');
      assert.equal(other.code, 78);
      assert.match(
        other.err,
        /the watcher large exists and has 4 slices.*chainbell watchers slices large 8$/m,
      );
      assert.equal((await keys('--watcher', 'large')).code, 0);
      const { code, err } = await run('slices', 'large', '16');
      assert.deepEqual(
        [code, err],
        [0, 'large has 16 slices; existing watched addresses stay where they are\n'],
      );
      assert.equal(JSON.parse((await run('slices', 'large', '16', '--json')).out).slices, 16);
      assert.match((await run('show', 'large')).out, /^slices {3}16$/m);
      const lower = await run('slices', 'large', '2');
      assert.equal(lower.code, 78);
      assert.match(lower.err, /The watcher has 16 slices, and the number can't be lowered\. Give 16 or more/);
      for (const wrong of ['0', '257', 'x', '1.5'])
        assert.match(
          (await run('slices', 'large', wrong)).err,
          /It must be a whole number from 1 to 256/,
          wrong,
        );
      assert.equal((await chainbell(place.dataDir, env(), 'watchers', 'delete', 'large', '--yes')).code, 0);
    });

    testOnServer('an unknown watcher ends every command with 64', async () => {
      for (const [command, ...words] of [
        ['show', '77'],
        ['suspend', 'nobody'],
        ['resume', ''],
        ['slices', '77', '2'],
        ['delete', '9'.repeat(30), '--yes'],
      ] as const) {
        const { code, err } = await run(command, ...words);
        assert.equal(code, 64, `${command}: ${err}`);
        assert.match(err, /no watcher has the name or id /);
      }
    });

    test('deleting by id shows the name of the watcher, and a watcher that is being deleted cannot be suspended', async () => {
      const created = await chainbell(place.dataDir, env(), 'keys', 'create', '--watcher', 'gone soon');
      assert.equal(created.code, 0, created.err);
      const { id } = JSON.parse((await run('show', 'gone soon', '--json')).out);
      assert.match((await run('delete', String(id))).err, /To delete gone soon with 0 watched addresses/);
      const database = await place.open();
      // An existing watcher can get a key even if its name would be refused now.
      await create(database, ODD);
      await beginRemoval(database, id, new Date());
      await database.close();
      const { code, err } = await run('suspend', String(id));
      assert.equal(code, 0, err);
      assert.match(
        err,
        /^gone soon is being deleted: nothing is sent, and it cannot be resumed\nto finish deleting it: chainbell watchers delete \d+\n$/,
      );
      assert.equal((await run('delete', String(id), '--yes')).err, 'gone soon is deleted\n');
    });

    testOnServer(
      'without a terminal and without --yes nothing is deleted, and the output shows what would be deleted',
      async () => {
        const { code, err } = await run('delete', 'acme');
        assert.equal(code, 64);
        assert.match(err, /nothing was deleted\. To delete acme with 0 watched addresses, 0 notifications/);
        assert.equal(JSON.parse((await run('show', 'acme', '--json')).out).state, 'active');
      },
    );

    testOnServer('a deletion that is interrupted at its question says that nothing was deleted', async () => {
      const isTerminal = 'process.stdin.isTTY = process.stderr.isTTY = true';
      const onTerminal = { ...env(), NODE_OPTIONS: `--import "data:text/javascript,${isTerminal}"` };
      const stops: ((child: ChildProcessWithoutNullStreams) => void)[] = [
        ({ stdin }) => stdin.end('\u0003'),
        ({ stdin }) => stdin.end('\u0004'),
        ({ stdin }) => stdin.end(),
        (child) => child.kill('SIGTERM'),
      ];
      for (const stop of stops) {
        const { process: child, ended } = startChainbell(
          place.dataDir,
          onTerminal,
          'watchers',
          'delete',
          'acme',
        );
        child.stderr.on('data', (chunk: Buffer) => {
          if (chunk.includes('[y/N]')) stop(child);
        });
        const { code, err } = await ended;
        assert.equal(code, 75, err);
        assert.match(err, /\nchainbell: interrupted, so nothing was deleted\n$/);
      }
      assert.equal(JSON.parse((await run('show', 'acme', '--json')).out).state, 'active');
    });

    testOnServer(
      'a deletion that is interrupted before it has written anything deletes nothing',
      async () => {
        const database = await place.open();
        const [locked, free] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
        const locking = database.transaction(async (tx) => {
          await tx.query(sql`lock table watcher in access exclusive mode`);
          locked.resolve();
          await free.promise;
        });
        await locked.promise;
        const deletion = startChainbell(place.dataDir, env(), 'watchers', 'delete', 'acme', '--yes');
        const waiting = sql`select from pg_locks where relation = 'watcher'::regclass and not granted`;
        await waitUntil(async () => (await database.query(waiting)).length > 0);
        deletion.process.kill('SIGINT');
        free.resolve();
        await locking;
        await database.close();
        const { code, err } = await deletion.ended;
        assert.deepEqual([code, err], [75, '\nchainbell: interrupted, so nothing was deleted\n']);
        assert.equal(JSON.parse((await run('show', 'acme', '--json')).out).state, 'active');
      },
    );

    testOnServer(
      'a deletion counts attempts by the clock of the database, not by that of its machine',
      async () => {
        const database = await place.open();
        await create(database, 'late');
        const { id } = JSON.parse((await run('show', 'late', '--json')).out);
        const records = [await watchAddress(database, { watcherId: id })];
        await insertNotifications(database, { records, count: 1, state: 'processed' });
        const yearAhead = 'const now = Date.now; Date.now = () => now() + 3e10';
        const wrongClock = { ...env(), NODE_OPTIONS: `--import "data:text/javascript,${yearAhead}"` };
        const words = ['watchers', 'delete', 'late', '--yes'];
        const { code, err } = await chainbell(place.dataDir, wrongClock, ...words);
        assert.equal(code, 0, err);
        assert.deepEqual(
          await database.query(sql`select started_at > clock_timestamp() as is_ahead from receiver_window`),
          [{ is_ahead: false }, { is_ahead: false }],
        );
        await database.close();
      },
    );

    test('after a killed deletion the watcher stays suspended, show lists what is left, and the next deletion completes it', async () => {
      const database = await place.open();
      const record = await watchAddress(database, { watcherId: 1 });
      // On the server the deletion must last long enough to be killed between two of its batches.
      const count = kind === 'postgres' ? 100_001 : 3_000;
      await insertNotifications(database, { records: [record], count, state: 'processed' });
      await database.close();
      assert.match(
        (await run('show', 'acme')).out,
        kind === 'postgres'
          ? /^stored {3}1 watched address, 100,000\+ notifications, 100,000\+ attempts/m
          : /^stored {3}1 watched address, 3000 notifications, 3000 attempts/m,
      );
      const first = startChainbell(place.dataDir, env(), 'watchers', 'delete', 'acme', '--yes');
      if (kind === 'postgres') {
        const watching = await place.open();
        const isBegun = async () => {
          const [row] = await watching.query<{ count: number }>(
            sql`select count(*) as count from notification_status`,
          );
          return row !== undefined && row.count < count;
        };
        await waitUntil(isBegun, { describe: 'the first batch', pollMs: 5 });
        first.process.kill('SIGKILL');
        await watching.close();
      } else first.process.kill('SIGINT');
      await first.ended;
      const { code, out } = await run('show', 'acme');
      if (kind === 'postgres') {
        assert.equal(code, 0);
        assert.match(out, /^state {4}deleting since /m);
        assert.match(out, /^left {5}0 watched addresses, [1-9][\d,]*\+? notifications/m);
        assert.match(
          (await run('resume', 'acme')).err,
          /The watcher is being deleted\. Delete it again to finish that/,
        );
        const refused = await chainbell(place.dataDir, env(), 'keys', 'create', '--watcher', 'acme');
        assert.deepEqual([refused.code, /acme is being deleted/.test(refused.err)], [78, true], refused.err);
      }
      const last = await run('delete', 'acme', '--yes', '--json');
      assert.deepEqual([last.code, JSON.parse(last.out)], [0, { deleted: true }], last.err);
      assert.equal((await run('show', 'acme')).code, 64);
      assert.equal(JSON.parse((await run('list', '--json')).out).length, 2);
    });
  });
