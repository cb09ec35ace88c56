import assert from 'node:assert/strict';
import { test } from 'node:test';
import { loadConfig } from '../../src/config/load.ts';
import { Fault } from '../../src/core/fault.ts';
import { createLog, silentLog } from '../../src/core/log.ts';
import { startService } from '../../src/service.ts';
import { createTestDatabase } from '../kit/database.ts';
import { startTcpProxy } from '../kit/tcp-proxy.ts';
import { chain } from './chainbell.ts';

const SECRET = Buffer.alloc(32, 7).toString('base64');
const free = { http: { port: 0 }, metrics: { port: 0 } };
const quick = { log: silentLog(), startMsMax: 200 };

const isUnavailable = (error: unknown) => error instanceof Fault && error.code === 'unavailable';

test('a start without its database waits for a limited time, then gives up as unavailable', async () => {
  const url = 'postgres://chainbell@127.0.0.1:1/chainbell';
  const config = loadConfig({
    env: { ...chain, CHAINBELL_SECRET: SECRET },
    overrides: { ...free, database: { url } },
  });
  await assert.rejects(startService(config, quick), isUnavailable);
});

test('a start warns of nodes at one operator', async () => {
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

test('a database that goes away while a start reads from it is waited for', async () => {
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

test('a start without a node gives up as unavailable, and leaves nothing open behind', async () => {
  await using place = await createTestDatabase('embedded');
  const config = loadConfig({ env: chain, overrides: { ...free, dataDir: place.dataDir } });
  await assert.rejects(startService(config, quick), isUnavailable);
  // Its folder is free again.
  const database = await place.open();
  await database.close();
});

test('a service without the follower needs no node', async () => {
  await using place = await createTestDatabase('embedded');
  const config = loadConfig({ env: chain, overrides: { ...free, dataDir: place.dataDir } });
  const service = await startService(config, { ...quick, roles: ['api', 'delivery'] });
  const live = await fetch(`${service.apiUrl}/livez`);
  assert.deepEqual(await live.json(), { status: 'ok' });
  await Promise.all([service.stop(), service.stop()]);
  await assert.rejects(fetch(`${service.apiUrl}/livez`));
});

test('a port that is in use is named, and the start ends', async () => {
  await using place = await createTestDatabase('embedded');
  await using other = await createTestDatabase('embedded');
  const config = loadConfig({ env: chain, overrides: { ...free, dataDir: place.dataDir } });
  const service = await startService(config, { ...quick, roles: ['api'] });
  const port = Number(new URL(service.apiUrl).port);
  const second = loadConfig({ env: chain, overrides: { ...free, http: { port }, dataDir: other.dataDir } });
  await assert.rejects(
    startService(second, { ...quick, roles: ['api'] }),
    (error) =>
      error instanceof Fault && error.code === 'conflict' && error.message.includes(`127.0.0.1:${port}`),
  );
  await service.stop();
});
