import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe } from 'node:test';
import { issueKey, revokeKeyNow, rotateKey } from '../../src/app/issue-keys.ts';
import { lookupsOf } from '../../src/domain/api-key.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import { sql } from '../../src/store/db/sql.ts';
import { endProcess, writeHeartbeat } from '../../src/store/deployment/processes.ts';
import { listKekIds } from '../../src/store/watchers/api-keys.ts';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { findKeyOwner } from '../kit/key-owner.ts';
import { sampledTest } from '../kit/sample.ts';
import { chain, chainbell, chainbellToFull, needsFull, type Run, startChainbell } from './chainbell.ts';

const test = sampledTest(import.meta.url);

type Issued = { watcher_id: number; key_id: string; key: string };
type Listed = {
  key_id: string;
  watcher_id: number;
  watcher: string;
  created_at: string;
  expires_at: string | null;
  revoked_at: string | null;
  state: string;
};

const SECRET = Buffer.alloc(32, 7).toString('base64');
const KEY = /^cb_live_[0-9A-Za-z]{11}_[0-9A-Za-z]{43}_[0-9A-Za-z]{6}$/;

test('a command in a folder without a database says so, and creates nothing', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-keys-'));
  try {
    const dataDir = path.join(folder, 'nothing');
    for (const words of [
      ['keys', 'list'],
      ['watchers', 'list'],
    ]) {
      const { code, err } = await chainbell(folder, { ...chain, CHAINBELL_DATA_DIR: dataDir }, ...words);
      assert.equal(code, 78, words.join(' '));
      assert.match(err, /there is no database in .*nothing.* Set dataDir or database\.url/);
    }
    await assert.rejects(stat(dataDir), /ENOENT/);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('a command whose environment has an invalid variable says so, and does not use the demo of the folder', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-keys-'));
  try {
    const demo = path.join(folder, '.chainbell', 'demo');
    await mkdir(demo, { recursive: true });
    await writeFile(
      path.join(demo, 'chainbell.yaml'),
      'chain: { id: 31337, rpc: [http://127.0.0.1:1] }\ndataDir: data\n',
    );
    const create = (env: Record<string, string>) =>
      chainbell(folder, env, 'keys', 'create', '--watcher', 'acme');
    for (const [env, reason] of [
      [
        { ...chain, CHAINBELL_HTTP_PORT: '808O' },
        /^CHAINBELL_HTTP_PORT {2}http\.port: must be a whole number/,
      ],
      [{ DATABASE_URL: 'postgres://127.0.0.1:1/chainbell' }, /because DATABASE_URL is set/],
      [{ CHAINBELL_CHAIN_IDD: '1' }, /because CHAINBELL_CHAIN_IDD is set/],
    ] as const) {
      const { code, err } = await create(env);
      assert.equal(code, 78, err);
      assert.match(err, reason);
      assert.match(err, /The demo's configuration is not used/);
    }
    // Kubernetes sets such variables for a service named chainbell.
    const { code, err } = await create({ CHAINBELL_SERVICE_HOST: '10.0.0.1' });
    assert.equal(code, 0, err);
    assert.match(err, /uses that of the running demo/);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('a missing secret is not replaced while keys are stored, and keys work again once it is restored', async () => {
  await using place = await createTestDatabase('embedded');
  const keys = (...words: string[]) =>
    chainbell(place.dataDir, { ...chain, CHAINBELL_DATA_DIR: place.dataDir }, 'keys', ...words);
  assert.equal((await keys('create', '--watcher', 'acme')).code, 0);
  const file = path.join(place.dataDir, 'secret');
  const backup = path.join(place.dataDir, 'backup');
  await rename(file, backup);
  const lacking = await keys('list');
  assert.equal(lacking.code, 78);
  assert.match(
    lacking.err,
    /secret is missing, and the stored API keys were made with it\. Restore the file/,
  );
  await assert.rejects(stat(file), /ENOENT/);
  await rename(backup, file);
  const { code, out } = await keys('list');
  assert.deepEqual([code, /acme/.test(out)], [0, true]);
});

describe('keys on the embedded database', () => {
  let place: TestDatabase;
  const keys = (...words: string[]): Promise<Run> =>
    chainbell(place.dataDir, { ...chain, CHAINBELL_DATA_DIR: place.dataDir }, 'keys', ...words);
  before(async () => {
    place = await createTestDatabase('embedded');
  });
  after(() => place[Symbol.asyncDispose]());

  test('a key is created, shown once, listed without its secret and revoked', async () => {
    const created = await keys('create', '--watcher', 'acme', '--json');
    assert.equal(created.code, 0, created.err);
    assert.equal(created.err, '');
    const issued: Issued = JSON.parse(created.out);
    assert.deepEqual(Object.keys(issued), ['watcher_id', 'key_id', 'key']);
    assert.equal(issued.watcher_id, 1);
    assert.match(issued.key, KEY);
    assert.equal(issued.key.split('_')[2], issued.key_id);

    const forPeople = await keys('create', '--watcher', 'acme');
    assert.match(forPeople.out.trimEnd(), KEY);
    assert.match(forPeople.err, /^watcher 1, key \w+\. Store the key now/);

    const revoked = await keys('revoke', issued.key_id, '--json');
    const { key_id, watcher_has_valid_key } = JSON.parse(revoked.out);
    assert.deepEqual([revoked.code, key_id, watcher_has_valid_key], [0, issued.key_id, true]);
    const listed = await keys('list', '--json');
    const rows: Listed[] = JSON.parse(listed.out);
    assert.deepEqual(
      rows.map(({ watcher_id, watcher, revoked_at }) => [watcher_id, watcher, revoked_at === null]),
      [
        [1, 'acme', false],
        [1, 'acme', true],
      ],
    );
    assert.ok(!listed.out.includes(issued.key.slice(22, 60)));
    const [heading = '', first = ''] = (await keys('list')).out.split('\n');
    assert.match(heading, /^KEY +CREATED +STATE +WATCHER +NAME$/);
    assert.match(first, new RegExp(`^${issued.key_id}  \\S+Z  revoked  1 +acme$`));
    assert.equal(heading.indexOf('STATE'), first.indexOf('revoked'));
  });

  test('revoking the last key of a watcher warns that its webhooks continue without a key', async () => {
    const issued: Issued = JSON.parse((await keys('create', '--watcher', 'last', '--json')).out);
    const { code, err } = await keys('revoke', issued.key_id);
    assert.equal(code, 0);
    assert.match(
      err,
      /is revoked\nlast has no valid key left\. Its webhooks still go out, without the Authorization header\. To stop them: chainbell watchers suspend last\. To send the header again: chainbell keys create --watcher last\n$/,
    );
    const again = JSON.parse((await keys('revoke', issued.key_id, '--json')).out);
    assert.equal(again.watcher_has_valid_key, false);
  });

  test('the secret is created once, in a file that only its owner can read', async () => {
    assert.equal((await keys('list')).code, 0);
    const file = path.join(place.dataDir, 'secret');
    assert.equal((await stat(file)).mode & 0o777, 0o600);
    assert.equal(Buffer.from(await readFile(file, 'utf8'), 'base64').length, 32);
  });
});

describe('keys on a server', () => {
  let place: TestDatabase;
  const environment = () => ({
    ...chain,
    CHAINBELL_DATABASE_URL: place.url,
    CHAINBELL_SECRET: SECRET,
  });
  const keysWith = (env: Record<string, string>, ...words: string[]): Promise<Run> =>
    chainbell(place.dataDir, { ...environment(), ...env }, 'keys', ...words);
  const keys = (...words: string[]) => keysWith({}, ...words);
  before(async () => {
    place = await createTestDatabase('postgres');
  });
  after(() => place[Symbol.asyncDispose]());

  test('a rotated key stays valid beside its successor during the overlap', async () => {
    const old: Issued = JSON.parse((await keys('create', '--watcher', 'acme', '--json')).out);
    const rotated = await keys('rotate', old.key_id, '--overlap-hours', '2', '--json');
    assert.equal(rotated.code, 0, rotated.err);
    const next: Issued = JSON.parse(rotated.out);
    assert.equal(next.watcher_id, old.watcher_id);
    const rows: Listed[] = JSON.parse((await keys('list', '--json')).out);
    const [first, second] = rows;
    assert.ok(first !== undefined && second !== undefined);
    assert.deepEqual([first.key_id, second.key_id, second.revoked_at], [old.key_id, next.key_id, null]);
    const database = await place.open();
    const ring = deriveKeyRing(Buffer.from(SECRET, 'base64'));
    const watcherAt = (key: string, ms: number) =>
      findKeyOwner(database, lookupsOf(key, ring), new Date(Date.parse(second.created_at) + ms)).then(
        (watcher) => watcher?.id,
      );
    assert.equal(Date.parse(first.revoked_at ?? '') - Date.parse(second.created_at), 2 * 3_600_000);
    assert.equal(await watcherAt(old.key, 2 * 3_600_000 - 1), old.watcher_id);
    assert.equal(await watcherAt(old.key, 2 * 3_600_000), undefined);
    assert.equal(await watcherAt(next.key, 9 * 3_600_000), old.watcher_id);
    const again = await keys('rotate', old.key_id);
    assert.deepEqual([again.code, again.out], [78, '']);
    assert.match(
      again.err,
      /was already rotated, and stays valid until \S+\. To issue a new one: chainbell keys create --watcher \S/,
    );
  });

  test('a key that could not be shown is named, with advice to replace it', needsFull, async () => {
    const known = new Set<string>();
    const refused = async (...words: string[]) => {
      const { code, err } = await chainbellToFull(place.dataDir, environment(), 'keys', ...words, '--json');
      const listed: Listed[] = JSON.parse((await keysWith({}, 'list', '--json')).out);
      const issued = listed.filter(({ watcher, key_id }) => watcher === 'full' && !known.has(key_id));
      const [one] = issued;
      const key_id = one?.key_id ?? '';
      known.add(key_id);
      const advice = `the key ${key_id} of watcher ${one?.watcher_id} was issued, but could not be shown. Revoke it: chainbell keys revoke ${key_id}. Then`;
      assert.deepEqual([code, issued.length, err.includes(advice)], [69, 1, true], err);
      return key_id;
    };
    await refused('rotate', await refused('create', '--watcher', 'full'));
  });

  test('a key that nothing read is an error too', async () => {
    const { process: child, ended } = startChainbell(
      ...([place.dataDir, environment()] as const),
      ...['keys', 'create', '--watcher', 'unread'],
    );
    child.stdout.destroy();
    const { code, err } = await ended;
    assert.deepEqual([code, err.includes('was issued, but could not be shown')], [69, true], err);
  });

  test('the list as JSON tells an expired key from a revoked one', async () => {
    await using lists = await createTestDatabase('postgres');
    const database = await lists.open();
    const store = { database, keyRing: deriveKeyRing(Buffer.from(SECRET, 'base64')) };
    const at = (hours: number) => new Date(Date.now() + hours * 3_600_000);
    for (const [hours, overlapMs] of [
      [-3, 1_000],
      [-2, 10 * 3_600_000],
    ] as const) {
      const { keyId } = await issueKey(store, 'acme', at(hours));
      await rotateKey(store, keyId, { now: at(hours + 0.5), overlapMs });
    }
    const { keyId } = await issueKey(store, 'acme', at(-1));
    await revokeKeyNow(database, keyId, at(-1));
    const { out } = await keysWith({ CHAINBELL_DATABASE_URL: lists.url }, 'list', '--json');
    const listed: Listed[] = JSON.parse(out);
    assert.deepEqual(
      listed.map(({ state, expires_at, revoked_at }) => [state, expires_at !== null, revoked_at !== null]),
      [
        ['expired', true, true],
        ['valid', false, false],
        ['valid', true, true],
        ['valid', false, false],
        ['revoked', false, true],
      ],
    );
  });

  test('keys are listed to the last one, however many there are', async () => {
    await using lists = await createTestDatabase('postgres');
    const database = await lists.open();
    const keyRing = deriveKeyRing(Buffer.from(SECRET, 'base64'));
    await issueKey({ database, keyRing }, 'acme', new Date());
    await database.query(sql`
      insert into api_key (id, watcher_id, lookup, ciphertext, kek_id, created_at)
      select 'k' || n, watcher_id, int8send(n), ciphertext, kek_id, created_at - interval '1 hour'
      from api_key cross join generate_series(1::bigint, 10000) as n`);
    const listed = await keysWith({ CHAINBELL_DATABASE_URL: lists.url }, 'list', '--json');
    const ids = (JSON.parse(listed.out) as Listed[]).map(({ key_id }) => key_id);
    assert.deepEqual([new Set(ids).size, ids.length, ids.at(-1)?.startsWith('k')], [10_001, 10_001, false]);
  });

  test('invalid arguments and unknown ids exit with 64 and advice', async () => {
    const cases: [words: string[], message: RegExp][] = [
      [['revoke', 'nothing'], /no key has the id nothing: see chainbell keys list/],
      [['rotate', 'nothing'], /no key has the id nothing: see chainbell keys list/],
      [['rotate', 'x', '--overlap-hours', '-1'], /a number of hours from 0 to 8760/],
      [['rotate', 'x', '--overlap-hours', '1e300'], /a number of hours from 0 to 8760/],
      [['create'], /required option '--watcher <name>'/],
      [['create', '--watcher', 'a', '--unknown'], /unknown option '--unknown'/],
      [['create', '--watcher', ''], /'--watcher <name>' argument '' is invalid\. A watcher needs a name\./],
      [['create', '--watcher', ' '], /A watcher needs a name\./],
      [['create', '--watcher', 'two\nlines'], /must not contain line breaks or control characters/],
      [['create', '--watcher', 'x'.repeat(300)], /the name of a watcher may have 100 characters/],
      [['nothing'], /unknown command|too many arguments/],
    ];
    for (const [words, message] of cases) {
      const { code, out, err } = await keys(...words);
      assert.deepEqual([code, out], [64, ''], `${words.join(' ')}: ${err}`);
      assert.match(err, message);
    }
  });

  test('a whole key in place of an id or a name is recognized, and nothing secret of it is printed', async () => {
    const { key, key_id: id }: Issued = JSON.parse((await keys('create', '--watcher', 'acme', '--json')).out);
    const secret = key.split('_')[3]?.slice(0, 10) ?? '';
    assert.equal(secret.length, 10);
    const notName = `this is a whole API key, not the name or id of a watcher. To see the watcher of ${id}: chainbell keys list`;
    for (const [words, message] of [
      [['keys', 'rotate'], `this is a whole API key. Use only its id, which is ${id}`],
      [['keys', 'revoke'], `this is a whole API key. Use only its id, which is ${id}`],
      [['secrets', 'rotate', '--watcher'], notName],
      [['watchers', 'suspend'], notName],
      [['keys', 'create', '--watcher'], 'the name of a watcher must not be an API key'],
    ] as const) {
      // One that was cut off has a part of the secret too.
      for (const text of [key, key.slice(0, -10)]) {
        const { code, out, err } = await chainbell(place.dataDir, environment(), ...words, text);
        assert.deepEqual([code, out, err.includes(message)], [64, '', true], err);
        assert.ok(!err.includes(secret), words.join(' '));
      }
    }
  });

  test('a secret other than the one of the stored keys exits with 78', async () => {
    await keys('create', '--watcher', 'acme');
    const { code, out, err } = await keysWith(
      { CHAINBELL_SECRET: Buffer.alloc(32, 8).toString('base64') },
      'list',
    );
    assert.deepEqual([code, out], [78, '']);
    assert.match(err, /secret is not the one with which the stored API keys were made/);
  });

  test('a database server that refuses the password exits with 78, and an unreachable one with 69', async () => {
    const wrong = new URL(place.url);
    wrong.password = 'not-the-password';
    const refused = await keysWith({ CHAINBELL_DATABASE_URL: wrong.href }, 'list');
    assert.equal(refused.code, 78, refused.err);
    const away = await keysWith(
      { CHAINBELL_DATABASE_URL: 'postgres://chainbell:not-the-password@127.0.0.1:1/chainbell' },
      'list',
    );
    assert.equal(away.code, 69, away.err);
    assert.match(away.err, /ECONNREFUSED.*Check that the server runs and that database\.url .* names it/);
    assert.match(refused.err, /Check user and password in database\.url/);
    const without = new URL(place.url);
    without.password = '';
    const asked = await keysWith({ CHAINBELL_DATABASE_URL: without.href }, 'list');
    assert.equal(asked.code, 78, asked.err);
    assert.match(asked.err, /The server asks for a password, and database\.url \(DATABASE_URL\) has none\n/);
    const unknown = new URL(place.url);
    unknown.pathname = '/no_such_database';
    const missing = await keysWith({ CHAINBELL_DATABASE_URL: unknown.href }, 'list');
    assert.equal(missing.code, 78);
    assert.match(missing.err, /does not exist\. Create this database, or change database\.url/);
    for (const { err } of [refused, away])
      assert.ok(!err.includes('not-the-password') && !/^ +at /m.test(err), err);
  });
});

describe('a new secret on a server', () => {
  const NEW_SECRET = Buffer.alloc(32, 9).toString('base64');
  const both = { CHAINBELL_SECRET: NEW_SECRET, CHAINBELL_FORMER_SECRETS: SECRET };
  let place: TestDatabase;
  const keysWith = (env: Record<string, string>, ...words: string[]): Promise<Run> =>
    chainbell(place.dataDir, { ...chain, CHAINBELL_DATABASE_URL: place.url, ...env }, 'keys', ...words);
  before(async () => {
    place = await createTestDatabase('postgres');
  });
  after(() => place[Symbol.asyncDispose]());

  test('rekey changes nothing while a running process lacks the new secret, and names it, also one that starts meanwhile', async () => {
    const [former, ring] = [SECRET, NEW_SECRET].map((text) => deriveKeyRing(Buffer.from(text, 'base64')));
    assert.ok(former !== undefined && ring !== undefined);
    const database = await place.open();
    await issueKey({ database, keyRing: former }, 'acme', new Date());
    const one = { roles: ['delivery'], version: '1', pid: 7, startedAt: new Date() };
    for (const [host, kekIds] of [
      ['web-1', [former.kekId, ring.kekId]],
      ['web-2', [former.kekId]],
      ['web-3', [former.kekId]],
    ] as const)
      await writeHeartbeat(database, { ...one, id: host, host, kekIds }, undefined);
    await endProcess(database, 'web-3', { isFailed: false, error: undefined });
    // The command may take longer than the 10 s after which a process is lost.
    await database.query(sql`update process set seen_at = clock_timestamp() + interval '1 hour'`);
    const refused = await keysWith(both, 'rekey');
    assert.deepEqual([refused.code, refused.out], [78, '']);
    assert.match(refused.err, /new secret: delivery on web-2 \(pid 7\)\. Set it there as secret/);
    assert.deepEqual(await listKekIds(database), [former.kekId]);
    await endProcess(database, 'web-2', { isFailed: false, error: undefined });
    // It starts while the keys are re-encrypted.
    await database.script(`
      create function start_meanwhile() returns trigger language plpgsql as
        $$ begin update process set stopped = false where id = 'web-2'; return null; end $$;
      create trigger start_meanwhile after update on api_key execute function start_meanwhile()`);
    const overtaken = await keysWith(both, 'rekey', '--json');
    await database.script('drop trigger start_meanwhile on api_key; drop function start_meanwhile');
    assert.deepEqual([overtaken.code, overtaken.out], [78, '']);
    assert.match(overtaken.err, /started meanwhile doesn't have it: delivery on web-2 \(pid 7\)\. Set it/);
    assert.deepEqual(await listKekIds(database), [ring.kekId]);
    await endProcess(database, 'web-2', { isFailed: false, error: undefined });
    assert.equal((await keysWith(both, 'rekey')).code, 0);
    await database.query(sql`delete from api_key`);
    await database.query(sql`delete from signing_secret`);
    await database.query(sql`delete from watcher`);
  });

  test('after rekey, everything uses the new secret, and the former one can be removed', async () => {
    const created = await keysWith({ CHAINBELL_SECRET: SECRET }, 'create', '--watcher', 'acme', '--json');
    const issued: Issued = JSON.parse(created.out);
    const alone = await keysWith({ CHAINBELL_SECRET: NEW_SECRET }, 'rekey');
    assert.deepEqual([alone.code, alone.out], [78, '']);
    assert.match(alone.err, /secret is not the one with which .* in formerSecrets/);

    const rekeyed = await keysWith(both, 'rekey');
    assert.deepEqual([rekeyed.code, rekeyed.out], [0, '']);
    assert.match(rekeyed.err, /^1 of 1 re-encrypted\neverything is encrypted under the current secret/);
    const again = await keysWith(both, 'rekey', '--json');
    const ring = deriveKeyRing(Buffer.from(NEW_SECRET, 'base64'));
    assert.deepEqual([again.err, JSON.parse(again.out)], ['', { rekeyed: 0, kek_id: ring.kekId }]);

    assert.equal((await keysWith({ CHAINBELL_SECRET: NEW_SECRET }, 'list')).code, 0);
    assert.equal((await keysWith({ CHAINBELL_SECRET: SECRET }, 'list')).code, 78);
    const database = await place.open();
    const watcher = await findKeyOwner(database, lookupsOf(issued.key, ring), new Date());
    assert.equal(watcher?.id, issued.watcher_id);
  });
});
