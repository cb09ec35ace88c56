import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { resumeWatcher, suspendWatcher } from '../../src/store/watchers/watchers.ts';
import { attemptDue } from '../kit/attempts.ts';
import { addressOf, headerOf, mine, noon, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { SECRET } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';
import { chain, chainbell, startChainbell } from './chainbell.ts';

let place: TestDatabase;
let database: Database;
const env = () => ({ ...chain, CHAINBELL_DATABASE_URL: place.url, CHAINBELL_SECRET: SECRET });
const receivers = (...words: string[]) => chainbell(place.dataDir, env(), 'receivers', ...words);

before(async () => {
  place = await createTestDatabase('postgres');
  database = await place.open();
  await database.query(
    sql`insert into watcher (name, created_at) values ('acme', ${noon}), ('beta', ${noon})`,
  );
  for (const watcherId of [1, 2])
    await watchAddress(database, {
      watcherId,
      address: addressOf(watcherId),
      url: `https://${watcherId}.example/`,
    });
  await mine(database, headerOf(1), [transferOf({ receiver: addressOf(1) })]);
  await attemptDue(database, { now: noon, succeeds: false });
});
after(() => place[Symbol.asyncDispose]());

test('receivers are listed in a table, for all watchers or for one, and failing ones are marked', async () => {
  const all = await receivers();
  assert.deepEqual([all.code, all.err], [0, '1 of 2 receivers is failing\n']);
  assert.match(all.out, /^WATCHER +RECEIVER +FAILING SINCE +ATTEMPTS +LAST +PENDING +OLDEST +NEXT ATTEMPT$/m);
  assert.match(
    all.out,
    /^acme +https:\/\/1\.example:443 +2025-11-20T12:00:00Z +1 +HTTP 500 +1 +2025-11-20T12:00:00Z +2025-11-20T12:01:00Z$/m,
  );
  assert.match(all.out, /^beta +https:\/\/2\.example:443 +no$/m);
  const failing = await receivers('--failing');
  assert.doesNotMatch(failing.out, /beta/);
  const none = await receivers('--failing', '--watcher', 'beta');
  assert.deepEqual([none.code, none.out, none.err], [0, '', 'no receiver is failing\n']);
  const [json] = JSON.parse((await receivers('--failing', '--json')).out) as Record<string, unknown>[];
  assert.deepEqual(
    [json?.watcher, json?.origin, json?.failed_attempts],
    ['acme', 'https://1.example:443', 1],
  );
});

test('watchers whose webhooks are late are listed by name', async () => {
  const { code, out, err } = await receivers('--late');
  assert.deepEqual([code, err], [0, '1 watcher is late\n']);
  assert.match(out, /^acme +2025-11-20T12:01:00\.000Z +\d+ s$/m);
});

test('an unknown watcher exits with 64 and advice', async () => {
  const { code, err } = await receivers('--watcher', 'nobody');
  assert.deepEqual(
    [code, err],
    [64, 'chainbell: no watcher has the name or id nobody. To see all: chainbell watchers list\n'],
  );
});

test('a watcher can also be given by its id', async () => {
  const { code, out, err } = await receivers('--watcher', '1');
  assert.deepEqual([code, err, /^beta/m.test(out)], [0, '1 of 1 receiver is failing\n', false]);
});

test('--late cannot be combined with options that select receivers', async () => {
  for (const words of [['--failing'], ['--watcher', 'acme']]) {
    const { code, out, err } = await receivers('--late', ...words);
    assert.deepEqual([code, out], [64, ''], err);
    assert.match(err, new RegExp(`'--late' cannot be used with option '${words[0]}`));
  }
});

test('receivers of a suspended watcher are shown as suspended, not as failing', async () => {
  await suspendWatcher(database, 1, noon);
  const all = await receivers();
  assert.equal(all.err, 'none of 2 receivers is failing, 1 of suspended watchers\n');
  assert.match(all.out, /^acme +https:\/\/1\.example:443 +suspended$/m);
  assert.deepEqual(JSON.parse((await receivers('--failing', '--json')).out), []);
  const [json] = JSON.parse((await receivers('--json')).out) as Record<string, unknown>[];
  assert.deepEqual([json?.suspended, json?.failing, json?.pending], [true, false, null]);
  await resumeWatcher(database, 1);
  assert.equal((await receivers('--failing')).err, '1 receiver is failing\n');
});

test('--watch repeats the table until it is interrupted', async () => {
  const { process: child, ended } = startChainbell(place.dataDir, env(), 'receivers', '--watch', '--json');
  let lines = 0;
  child.stdout.on('data', (chunk: Buffer) => {
    lines += chunk.toString().split('\n').length - 1;
  });
  await waitUntil(() => lines >= 2);
  child.kill('SIGINT');
  assert.equal((await ended).code, 0);
});

test('receivers are listed to the last one, and a list of late watchers says what it leaves out', async () => {
  // Each has a shard of its own, and a webhook that is due since noon.
  await database.query(sql`
    insert into watcher (name, created_at) select 'late ' || n, ${noon} from generate_series(1, 1000) as n`);
  await database.query(sql`
    insert into lane (shard_id, watcher_id, origin, next_due)
    select w.id, w.id, 'https://' || n || '.example:443', ${noon}
    from watcher w cross join generate_series(1, 10) as n where w.name like 'late %'`);
  await database.query(sql`
    insert into watcher_queue (watcher_id, next_due) select id, ${noon} from watcher where name like 'late %'`);
  const all = await receivers('--json');
  assert.deepEqual([JSON.parse(all.out).length, all.err], [10_002, '']);
  const note = 'only the 1000 latest of 1001 are listed\n';
  assert.equal((await receivers('--late')).err, `1001 watchers are late; ${note}`);
  const late = await receivers('--late', '--json');
  assert.deepEqual([JSON.parse(late.out).length, late.err], [1_000, note]);
});
