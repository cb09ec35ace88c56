import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { findFreePort, findPortNear, listenNear, retryOnConflict } from '../../devnet/free-port.ts';
import { Fault } from '../../src/core/fault.ts';

test('a free port is taken as it is, a taken one is refused by its number and has a neighbour', async () => {
  const port = await findFreePort(0);
  assert.equal(await findFreePort(port), port);
  assert.equal(await findPortNear(port), port);

  const server = createServer().listen(port, '127.0.0.1');
  await once(server, 'listening');
  await assert.rejects(findFreePort(port), { code: 'conflict', message: `port ${port} cannot be used` });
  assert.notEqual(await findPortNear(port), port);
  const late = createServer();
  assert.notEqual(await listenNear(late, port), port);
  late.close();
  server.close();
});

test('only a conflict is a reason to start on other ports', async () => {
  const tried: number[] = [];
  const failWith = (code: 'conflict' | 'unavailable') => async (port: number) => {
    tried.push(port);
    if (port === 1) throw new Fault(code, 'no');
    return 'started';
  };
  const ports = { preferred: 1, otherwise: 2 };
  assert.equal(await retryOnConflict(failWith('conflict'), ports), 'started');
  await assert.rejects(retryOnConflict(failWith('unavailable'), ports), { code: 'unavailable' });
  assert.deepEqual(tried, [1, 2, 1]);
});
