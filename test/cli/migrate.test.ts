import assert from 'node:assert/strict';
import { mkdtemp, mkdtempDisposable, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openDatabase } from '../../src/store/db/open.ts';
import { sql } from '../../src/store/db/sql.ts';
import { endProcess, writeHeartbeat } from '../../src/store/deployment/processes.ts';
import { noon } from '../kit/chain-story.ts';
import { createTestDatabase } from '../kit/database.ts';
import { sampledTest } from '../kit/sample.ts';
import { chain, chainbell } from './chainbell.ts';

const test = sampledTest(import.meta.url, { shares: 2 });

const SECRET = Buffer.alloc(32, 7).toString('base64');

test('migrate --check changes nothing and exits with 75 while a migration is pending, and migrate applies it', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-cli-'));
  try {
    const run = (...words: string[]) =>
      chainbell(folder, { ...chain, CHAINBELL_DATA_DIR: folder }, 'migrate', ...words);
    await (await openDatabase({ url: '', dataDir: folder })).close();
    for (let time = 0; time < 2; time += 1) {
      const check = await run('--check', '--json');
      assert.equal(check.code, 75, check.err);
      const { applied, pending, applied_now } = JSON.parse(check.out);
      assert.deepEqual([applied, pending[0], applied_now], [0, '0001_baseline.sql', []]);
    }
    const done = await run();
    assert.deepEqual([done.code, done.out], [0, '']);
    assert.match(
      done.err,
      /^applied 0001_baseline\.sql\n(applied .*\n)*the schema is up to date at migration \d+\n$/,
    );
    const after = await run('--check', '--json');
    assert.equal(after.code, 0);
    assert.deepEqual(JSON.parse(after.out).pending, []);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('migrate --check creates no database where there is none, and exits with 78', async () => {
  await using folder = await mkdtempDisposable(path.join(tmpdir(), 'chainbell-cli-'));
  const env = { ...chain, CHAINBELL_DATA_DIR: path.join(folder.path, 'data') };
  const { code, out, err } = await chainbell(folder.path, env, 'migrate', '--check', '--json');
  assert.deepEqual([code, out], [78, ''], err);
  assert.match(err, /^chainbell: there is no database in .*data, and database\.url is not set\. /);
  assert.deepEqual(await readdir(folder.path), []);
});

test('a data folder that is a file ends migrate with 78, as it ends the other commands', async () => {
  await using folder = await mkdtempDisposable(path.join(tmpdir(), 'chainbell-cli-'));
  const file = path.join(folder.path, 'file');
  await writeFile(file, '');
  const env = { ...chain, CHAINBELL_DATA_DIR: file };
  for (const [words, message] of [
    [
      ['migrate'],
      /^chainbell: .*file is a file or lies below one, not a folder\. Move it away, or set dataDir/,
    ],
    [['migrate', '--check'], /^chainbell: there is no database in .*file, and database\.url is not set\. /],
  ] as const) {
    const { code, out, err } = await chainbell(folder.path, env, ...words);
    assert.deepEqual([code, out], [78, ''], err);
    assert.match(err, message);
  }
});

test('commands leave an empty database as it is, except for the one that creates the first key', async () => {
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  await database.script('drop schema public cascade; create schema public');
  const run = (...words: string[]) =>
    chainbell(
      place.dataDir,
      { ...chain, CHAINBELL_DATABASE_URL: place.url, CHAINBELL_SECRET: SECRET },
      ...words,
    );
  const tables = async () => {
    const [row] = await database.query<{ count: number }>(
      sql`select count(*)::integer as count from pg_tables where schemaname = 'public'`,
    );
    return row?.count;
  };
  for (const words of [['processes'], ['keys', 'list'], ['points', 'explain', `0x${'ab'.repeat(32)}`]]) {
    const { code, err } = await run(...words);
    assert.deepEqual([code, /the database is empty: check database\.url/.test(err)], [78, true], err);
  }
  assert.equal(await tables(), 0);
  const created = await run('keys', 'create', '--watcher', 'acme');
  assert.equal(created.code, 0, created.err);
  assert.equal((await run('processes')).code, 0);
});

test('a data folder that another process has open without serving commands exits with 78 and names that process', async () => {
  await using place = await createTestDatabase('embedded');
  await place.open();
  const { code, err } = await chainbell(
    place.dataDir,
    { ...chain, CHAINBELL_DATA_DIR: place.dataDir },
    'migrate',
    '--check',
  );
  assert.equal(code, 78, err);
  assert.match(err, new RegExp(`in use by process ${process.pid}. Stop that process first`));
});

test('a database that is newer than the program exits with 78', async () => {
  await using place = await createTestDatabase('postgres');
  const database = await openDatabase({ url: place.url, dataDir: '' });
  await database.script("insert into migration values (9999, 'from the future', now(), 'test')");
  await database.close();
  const env = { ...chain, CHAINBELL_DATABASE_URL: place.url, CHAINBELL_SECRET: SECRET };
  const { code, err } = await chainbell(place.dataDir, env, 'migrate', '--check');
  assert.deepEqual([code, /Start the newer version/.test(err)], [78, true], err);
});

test('migrate --citus refuses to run beside the service, and names its processes', async () => {
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  const one = { version: '0.1.0', host: 'one.example', startedAt: noon, kekIds: [] };
  await writeHeartbeat(database, { ...one, id: 'aaaa', roles: ['follower', 'api'], pid: 7 }, undefined);
  await writeHeartbeat(database, { ...one, id: 'bbbb', roles: ['delivery'], pid: 8 }, undefined);
  await endProcess(database, 'bbbb', { isFailed: false, error: undefined });
  // The command may take longer than the 10 s after which a process is lost.
  await database.query(sql`update process set seen_at = clock_timestamp() + interval '1 hour'`);
  const env = { ...chain, CHAINBELL_DATABASE_URL: place.url, CHAINBELL_SECRET: SECRET };
  const run = () => chainbell(place.dataDir, env, 'migrate', '--citus');
  const refused = await run();
  assert.deepEqual(
    [refused.code, refused.err],
    [
      78,
      'chainbell: the service runs: follower,api on one.example (pid 7). Stop it, and run this command again. A killed process counts as running for 10 s\n',
    ],
  );
  await database.query(sql`update process set seen_at = clock_timestamp() - interval '11 seconds'`);
  assert.match((await run()).err, /the extension citus is missing/);
});

test('every command exits with 78 if the configuration has problems', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-cli-'));
  try {
    await writeFile(
      path.join(folder, 'chainbell.yaml'),
      'chain: { id: 1, rpc: [http://127.0.0.1:1] }\nhtpp: {}\n',
    );
    for (const words of [['migrate', '--check'], ['keys', 'list'], ['start'], ['config', 'check']]) {
      const { code, out, err } = await chainbell(folder, {}, ...words);
      assert.deepEqual([code, out], [78, ''], words.join(' '));
      assert.match(err, /^chainbell\.yaml:2:1 {2}htpp: unknown key/);
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('wrong usage names the help of the command that was used', async () => {
  for (const [words, hint] of [
    [['bogus'], 'chainbell --help lists the commands'],
    [['keys', 'bogus'], 'chainbell keys --help lists the commands'],
    [['keys', 'create'], 'chainbell keys create --help shows how to use it'],
    [['verify', '--from', 'x'], 'chainbell verify --help shows how to use it'],
  ] as const) {
    const { code, err } = await chainbell(tmpdir(), {}, ...words);
    assert.deepEqual([code, err.trimEnd().endsWith(`(${hint})`)], [64, true], err);
  }
});

test('a word that begins with a dash is the value of an option only after an equals sign', async () => {
  for (const [words, value] of [
    [['keys', 'create', '--watcher', '--json'], '--json'],
    [['verify', '--from', '--to', '5'], '--to'],
    [['start', '--config', '--role', 'api'], '--role'],
  ] as const) {
    const { code, out, err } = await chainbell(tmpdir(), chain, ...words);
    assert.deepEqual([code, out], [64, ''], err);
    const flag = words.find((word) => word.startsWith('--'));
    assert.match(
      err,
      new RegExp(`'${value}' begins with a dash\\. If it is the value, write ${flag}=${value}\n`),
    );
  }
  const meant = await chainbell(tmpdir(), chain, 'start', '--role=-x');
  assert.match(meant.err, /-x/);
  assert.doesNotMatch(meant.err, /dash/);
});

test('a folder of the demo that is a file is refused in words', async () => {
  const { code, err } = await chainbell(tmpdir(), {}, 'demo', '--data-dir', process.execPath);
  assert.equal(code, 78, err);
  assert.match(
    err,
    /^chainbell demo: cannot use the folder .*: it is a file\. Name another one with --data-dir\n$/,
  );
});

test('--help and --version exit with 0, and an unknown command with 64 and the command that was probably meant', async () => {
  const version = await chainbell(tmpdir(), {}, '--version');
  assert.equal(version.code, 0);
  assert.match(version.out, /^\d+\.\d+\.\d+\n$/);
  const help = await chainbell(tmpdir(), {}, '--help');
  assert.equal(help.code, 0);
  for (const word of ['start', 'demo', 'migrate', 'keys', 'status', 'config', 'Exit codes'])
    assert.ok(help.out.includes(word), word);
  for (const words of [['strat'], ['start', '--role', 'cook'], ['migrate', '--unknown']]) {
    const { code, out, err } = await chainbell(tmpdir(), chain, ...words);
    assert.deepEqual([code, out], [64, ''], words.join(' '));
    assert.notEqual(err, '');
  }
  for (const [word, suggested] of [
    ['stat', 'status'],
    ['proc', 'processes'],
    ['strat', 'start'],
  ] as const) {
    const { code, err } = await chainbell(tmpdir(), chain, word);
    assert.deepEqual([code, /Did you mean (.*)\?/.exec(err)?.[1]], [64, suggested], err);
  }
});
