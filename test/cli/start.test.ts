import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { startService } from '../../src/app/service.ts';
import { loadConfig } from '../../src/config/load.ts';
import { Fault } from '../../src/core/fault.ts';
import { createLog, silentLog } from '../../src/core/log.ts';
import { createTestDatabase } from '../kit/database.ts';
import { sampledTest } from '../kit/sample.ts';
import { startTcpProxy } from '../kit/tcp-proxy.ts';
import { waitUntil } from '../kit/wait.ts';
import { chain } from './chainbell.ts';

const test = sampledTest(import.meta.url, { shares: 2 });

const SECRET = Buffer.alloc(32, 7).toString('base64');
const free = { http: { port: 0 }, metrics: { port: 0 } };
const quick = { log: silentLog(), startMsMax: 200 };

const isUnavailable = (error: unknown) => error instanceof Fault && error.code === 'unavailable';

test('a start without its database waits for a limited time, then fails as unavailable', async () => {
  const url = 'postgres://chainbell@127.0.0.1:1/chainbell';
  const config = loadConfig({
    env: { ...chain, CHAINBELL_SECRET: SECRET },
    overrides: { ...free, database: { url } },
  });
  await assert.rejects(startService(config, quick), isUnavailable);
});

test('a start warns about nodes of one operator', async () => {
  const rpc = ['http://127.0.0.1:1', 'http://127.0.0.1:2'];
  const database = { url: 'postgres://chainbell@127.0.0.1:1/chainbell' };
  const config = loadConfig({
    env: { ...chain, CHAINBELL_SECRET: SECRET },
    overrides: { ...free, database, chain: { rpc } },
  });
  let text = '';
  const log = createLog({ level: 'warn', format: 'pretty' }, { write: (line) => (text += line) });
  await assert.rejects(startService(config, { ...quick, log }), isUnavailable);
  assert.match(text, /config\.warning.*chain\.rpc\[0\], chain\.rpc\[1\] are all at localhost/);
});

test('a start waits for a database that becomes unavailable while the start reads from it', async () => {
  await using place = await createTestDatabase('postgres');
  const direct = new URL(place.url);
  await using proxy = await startTcpProxy({ host: direct.hostname, port: Number(direct.port) });
  const proxied = new URL(direct);
  proxied.port = String(proxy.port);
  const config = loadConfig({
    env: { ...chain, CHAINBELL_SECRET: SECRET },
    overrides: { ...free, database: { url: proxied.href }, dataDir: place.dataDir },
  });
  const cuts = Promise.all(['from migration', 'from chain'].map((statement) => proxy.cutAt(statement)));
  const service = await startService(config, { log: silentLog(), roles: ['api'] });
  await cuts;
  await service.stop();
});

test('a start waits for a command that has the embedded database, and fails as unavailable if it takes too long', async () => {
  await using place = await createTestDatabase('embedded');
  const config = loadConfig({ env: chain, overrides: { ...free, dataDir: place.dataDir } });
  const command = await place.open();
  await assert.rejects(startService(config, { ...quick, roles: ['api'] }), {
    code: 'unavailable',
    message: /is in use by process \d+\. .* If that is a command, the folder is free as soon as it ends$/,
  });
  const { log, waits } = noteWaits(() => void command.close());
  const service = await startService(config, { log, roles: ['api'] });
  await service.stop();
  assert.match(
    waits[0] ?? '',
    /"waitingFor":"database".* is in use by process \d+\. .*If that is a command/s,
  );
});

test('a start does not wait for another service that has the embedded database', async () => {
  await using place = await createTestDatabase('embedded');
  const config = loadConfig({ env: chain, overrides: { ...free, dataDir: place.dataDir } });
  const service = await startService(config, { ...quick, roles: ['api'] });
  const { log, waits } = noteWaits(() => {});
  await assert.rejects(startService(config, { log, roles: ['api'] }), {
    code: 'conflict',
    message: /is in use by process \d+\. Stop that process first$/,
  });
  assert.deepEqual(waits, []);
  await service.stop();
});

/** A log that keeps the lines about what a start waits for, and calls back. */
function noteWaits(onWait: () => void) {
  const waits: string[] = [];
  const write = (line: string) => {
    if (!line.includes('service.waits')) return;
    waits.push(line);
    onWait();
  };
  return { log: createLog({ level: 'warn', format: 'pretty' }, { write }), waits };
}

test('a start without a node fails as unavailable, and closes its data folder', async () => {
  await using place = await createTestDatabase('embedded');
  const config = loadConfig({ env: chain, overrides: { ...free, dataDir: place.dataDir } });
  await assert.rejects(startService(config, quick), isUnavailable);
  // Fails if the folder is still locked.
  const database = await place.open();
  await database.close();
});

test('while a start waits for its nodes, /status shows holding and what to do', async () => {
  await using place = await createTestDatabase('embedded');
  const port = await findFreePort();
  const config = loadConfig({
    env: chain,
    overrides: { ...free, http: { port }, dataDir: place.dataDir },
  });
  const stopping = new AbortController();
  const started = assert.rejects(startService(config, { log: silentLog(), signal: stopping.signal }));
  type Shown = { state: string; problem: { message: string } | null };
  const { problem } = await waitUntil(
    async () => {
      const answer = await fetch(`http://127.0.0.1:${port}/status`).catch(() => undefined);
      const shown = (await answer?.json()) as Shown | undefined;
      return shown?.state === 'holding' && shown;
    },
    { timeoutMs: 120_000 },
  );
  assert.match(
    problem?.message ?? '',
    /^chain\.rpc\[0\]: .*ECONNREFUSED.*\. Following starts as soon as enough nodes answer\. Check that the nodes run/,
  );
  stopping.abort();
  await started;
});

async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  assert.ok(typeof address === 'object' && address !== null);
  return address.port;
}

test('a service without the follower needs no node', async () => {
  await using place = await createTestDatabase('embedded');
  const config = loadConfig({ env: chain, overrides: { ...free, dataDir: place.dataDir } });
  const service = await startService(config, { ...quick, roles: ['api', 'delivery'] });
  const live = await fetch(`${service.apiUrl}/livez`);
  assert.deepEqual(await live.json(), { status: 'ok' });
  await Promise.all([service.stop(), service.stop()]);
  await assert.rejects(fetch(`${service.apiUrl}/livez`));
});

test('a start at a port that is in use fails and names the port', async () => {
  await using place = await createTestDatabase('embedded');
  await using other = await createTestDatabase('embedded');
  const config = loadConfig({ env: chain, overrides: { ...free, dataDir: place.dataDir } });
  const service = await startService(config, { ...quick, roles: ['api'] });
  const port = Number(new URL(service.apiUrl).port);
  const second = loadConfig({ env: chain, overrides: { ...free, http: { port }, dataDir: other.dataDir } });
  await assert.rejects(
    startService(second, { ...quick, roles: ['api'] }),
    (error) =>
      error instanceof Fault &&
      error.code === 'conflict' &&
      error.message.includes(`127.0.0.1:${port}`) &&
      error.message.includes('Change http.port (CHAINBELL_HTTP_PORT)'),
  );
  await service.stop();
});
