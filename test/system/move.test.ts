/**
 * An installation that has outgrown the embedded database moves to a PostgreSQL server with `chainbell migrate --from-embedded`.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createLog } from '../../src/core/log.ts';
import { migrate } from '../../src/store/db/migrate.ts';
import { beginIncomingMove, beginningOfMove, markMoved } from '../../src/store/db/moved.ts';
import { sql } from '../../src/store/db/sql.ts';
import { chainbell, chain as chainEnv } from '../cli/chainbell.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { type Receiver, startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, SECRET, startTestService } from '../kit/service.ts';

const parts = new AsyncDisposableStack();
let chain: Chain;
let receiver: Receiver;

before(async () => {
  chain = parts.use(await startChain());
  receiver = parts.use(await startReceiver());
});
after(() => parts.disposeAsync());

/** Runs `chainbell migrate --from-embedded`. */
const move = (old: TestDatabase, server: TestDatabase, env: Record<string, string> = {}) =>
  chainbell(
    old.dataDir,
    {
      ...chainEnv,
      CHAINBELL_DATA_DIR: old.dataDir,
      CHAINBELL_DATABASE_URL: server.url,
      CHAINBELL_SECRET: SECRET,
      ...env,
    },
    ...['migrate', '--from-embedded', '--json'],
  );

const heardIds = (hash: string) =>
  receiver.requests.flatMap(({ body }) => {
    const webhook = JSON.parse(body);
    return webhook.hash === hash ? [Number(webhook.id)] : [];
  });

test('after a move to a server, keys, records, waiting webhooks and ids go on, and nothing is sent twice', async () => {
  await using old = await createTestDatabase('embedded');
  await using server = await createTestDatabase('postgres');
  const options = { rpc: [chain.url], receivers: [receiver], retryMinutes: [0.01] };
  const address = freshAddress();
  const pay = async () => {
    const { hash } = await chain.transferNative({ from: chain.accounts[1], to: address, valueWei: 7n });
    return hash;
  };

  let service = await startTestService({ ...options, database: old });
  const acme = await createWatcher(service, 'acme');
  const record = await acme.watch({ address, webhookUrl: `${receiver.url}/move` });
  const told = await pay();
  await service.inSync(chain);
  await service.drained();
  assert.equal((await move(old, server)).code, 78, 'a move beside the running service');
  receiver.setAnswer({ status: 500 });
  const waiting = await pay();
  await service.inSync(chain);
  await service.stop();

  const { code, out, err } = await move(old, server);
  assert.equal(code, 0, err);
  assert.deepEqual(
    { watcher: 1, watched_address: 1 },
    { watcher: JSON.parse(out).tables.watcher, watched_address: JSON.parse(out).tables.watched_address },
  );

  receiver.setAnswer({});
  const later = await pay();
  service = await startTestService({ ...options, database: server });
  await using _running = service;
  await service.inSync(chain);
  await service.drained();
  const response = await fetch(`${service.apiUrl}/api/notifications/watched-addresses/${record.id}`, {
    headers: { authorization: `Bearer ${acme.key}` },
  });
  assert.equal(response.status, 200, await response.text());
  const rows = await service.notifications({ record });
  assert.deepEqual(
    rows.map(({ tx_hash, state }) => [tx_hash, state]),
    [told, waiting, later].map((hash) => [hash, 'processed']),
  );
  assert.deepEqual(heardIds(told), [rows[0]?.id]);
  assert.deepEqual(new Set(heardIds(waiting)), new Set([rows[1]?.id]));
  assert.deepEqual(heardIds(later), [rows[2]?.id]);
  assert.ok((rows[2]?.id ?? 0) > (rows[1]?.id ?? 0));

  await using other = await createTestDatabase('postgres');
  const elsewhere = await move(old, other);
  assert.equal(elsewhere.code, 78);
  assert.match(elsewhere.err, /moved to another database at .* run: rm .*moved-to-postgresql.* sent again/);
  assert.deepEqual(await (await other.open()).query(sql`select from watcher`), []);
  const again = await move(old, server);
  assert.equal(again.code, 0, again.err);
  assert.ok(Date.parse(JSON.parse(again.out).completed_at) <= Date.now());
  await assert.rejects(
    startTestService({ ...options, database: old }),
    /moved to PostgreSQL at .*Set database.url .* run: rm .*moved-to-postgresql.* only if no service has started/,
  );
});

test('a move that is refused says why and leaves both databases as they were', async () => {
  await using old = await createTestDatabase('embedded');
  await using server = await createTestDatabase('postgres');
  const source = await old.open();
  await source.query(sql`insert into watcher (name, created_at) values ('acme', now())`);
  await source.close();
  const target = await server.open();

  const [none, empty] = [await createTestDatabase('postgres'), { CHAINBELL_DATABASE_URL: '' }];
  await using _none = none;
  const cases: [string, RegExp, Promise<{ code: number; err: string }>][] = [
    ['no server', /database\.url is empty/, move(old, server, empty)],
    ['no embedded database', /holds no embedded database/, move(none, server)],
  ];
  for (const [name, message, run] of cases) {
    const { code, err } = await run;
    assert.notEqual(code, 0, name);
    assert.match(err, message, name);
  }
  await target.query(sql`insert into chain (chain_id) values (1)`);
  const used = await move(old, server);
  assert.equal(used.code, 78);
  assert.match(used.err, /its table "chain" has rows. Name an empty database/);
  await target.query(sql`delete from chain`);
  assert.deepEqual(await target.query(sql`select from watcher`), []);

  await target.script('create table mine (id int)');
  const foreign = await move(old, server);
  assert.equal(foreign.code, 78);
  assert.match(foreign.err, /has tables of another program: mine/);
  await target.script('drop table mine');

  // A database that a move was refused is not marked, so that its own service can start again.
  assert.deepEqual(await target.query(sql`select from incoming_move`), []);
});

test('on the target of an interrupted move nothing starts before the move is complete, and a repeated move says that it is', async () => {
  await using old = await createTestDatabase('embedded');
  await using server = await createTestDatabase('postgres');
  const source = await old.open();
  await source.query(sql`insert into watcher (name, created_at) values ('acme', now())`);
  await source.close();
  const target = await server.open();
  const env = { ...chainEnv, CHAINBELL_DATABASE_URL: server.url, CHAINBELL_SECRET: SECRET };

  // As if the process had ended while the commit was on its way.
  await beginIncomingMove(target, new Date());
  await markMoved(old.dataDir, target, new Date());
  await assert.rejects(old.open(), /moved to PostgreSQL at/);
  const refused = /is not complete\. To complete it, run: chainbell migrate --from-embedded\./;
  await assert.rejects(startTestService({ rpc: [chain.url], database: server }), refused);
  const issue = await chainbell(server.dataDir, env, 'keys', 'create', '--watcher', 'acme');
  assert.equal(issue.code, 78);
  assert.match(issue.err, refused);
  const check = await chainbell(server.dataDir, env, 'migrate', '--check');
  assert.equal(check.code, 78);
  assert.match(check.err, refused);
  assert.deepEqual(await target.query(sql`select from watcher`), []);

  const done = await move(old, server);
  assert.equal(done.code, 0, done.err);
  assert.deepEqual(await target.query(sql`select name from watcher`), [{ name: 'acme' }]);
  await using _service = await startTestService({ rpc: [chain.url], database: server });
  const again = await chainbell(
    ...([old.dataDir, { ...env, CHAINBELL_DATA_DIR: old.dataDir }, 'migrate', '--from-embedded'] as const),
  );
  assert.equal(again.code, 0);
  assert.match(again.err, /^nothing to do: this embedded database moved to the one at database\.url at /);
});

test('nothing starts on a database whose tables a move created before it ended', async () => {
  await using old = await createTestDatabase('embedded');
  await using server = await createTestDatabase('postgres');
  const source = await old.open();
  await source.query(sql`insert into watcher (name, created_at) values ('acme', now())`);
  await source.close();
  const target = await server.open();
  await target.script('drop schema public cascade; create schema public');
  await migrate(target, undefined, beginningOfMove);
  await assert.rejects(
    startTestService({ rpc: [chain.url], database: server }),
    /is not complete\. To complete it, run: chainbell migrate --from-embedded\./,
  );
  const done = await move(old, server);
  assert.equal(done.code, 0, done.err);
  await using _service = await startTestService({ rpc: [chain.url], database: server });
  assert.deepEqual(await target.query(sql`select name from watcher`), [{ name: 'acme' }]);
});

test('a start on an empty server beside an embedded database that has not moved says so', async () => {
  await using old = await createTestDatabase('embedded');
  await using server = await createTestDatabase('postgres');
  await (await old.open()).close();
  let text = '';
  const log = createLog({ level: 'warn', format: 'pretty' }, { write: (line) => (text += line) });
  const start = async (dataDir: string) => {
    text = '';
    const database = { url: server.url, dataDir };
    await using _service = await startTestService({ rpc: [chain.url], database, log });
  };
  await start(old.dataDir);
  assert.match(text, /database\.not_moved/);
  await start(old.dataDir);
  assert.doesNotMatch(text, /not_moved/, 'the installation on the server has begun');
});
