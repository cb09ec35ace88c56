/**
 * Ports of the loopback interface, looked at before a program is started that takes a while to say "in use".
 */
import { once } from 'node:events';
import { createServer } from 'node:net';
import { Fault } from '../src/core/fault.ts';

/**
 * The port itself when nobody listens on it; for 0, a port that is free now.
 * @throws Fault `conflict` when somebody listens there, or we may not.
 */
export async function findFreePort(port: number): Promise<number> {
  const server = createServer();
  try {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
  } catch (cause) {
    throw new Fault('conflict', `port ${port} cannot be used`, { cause });
  }
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('a TCP server without a port');
  return address.port;
}

/** The preferred port, or another free one when that is taken. */
export async function findPortNear(preferred: number): Promise<number> {
  return findFreePort(preferred).catch((error: unknown) => {
    if (error instanceof Fault && error.code === 'conflict') return findFreePort(0);
    throw error;
  });
}
