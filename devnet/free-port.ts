/**
 * Ports of the loopback interface: looked at before a program is started that takes a while to say "in use", and taken.
 */
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { Fault } from '../src/core/fault.ts';

/**
 * The port itself when nobody listens on it; for 0, a port that is free now.
 * @throws Fault `conflict` when somebody listens there, or we may not.
 */
export async function findFreePort(port: number): Promise<number> {
  const server = createServer();
  const free = await listenOn(server, port);
  server.close();
  await once(server, 'close');
  return free;
}

/** Listens on the preferred port, or on another free one when that is taken. Returns which. */
export async function listenNear(server: Server, preferred: number): Promise<number> {
  return retryOnConflict((port: number) => listenOn(server, port), { preferred, otherwise: 0 });
}

async function listenOn(server: Server, port: number): Promise<number> {
  try {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
  } catch (cause) {
    throw new Fault('conflict', `port ${port} cannot be used`, { cause });
  }
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('a TCP server without a port');
  return address.port;
}

/** The preferred port, or another free one when that is taken. */
export async function findPortNear(preferred: number): Promise<number> {
  return retryOnConflict(findFreePort, { preferred, otherwise: 0 });
}

/**
 * Starts something on the preferred ports, and on other ones when that is a conflict: a port that was free when it was
 * looked at may be taken by now.
 * @throws what the second start throws; of the first one, everything but a Fault `conflict`.
 */
export async function retryOnConflict<Ports, Started>(
  start: (ports: Ports) => Promise<Started>,
  ports: { preferred: Ports; otherwise: Ports },
): Promise<Started> {
  try {
    return await start(ports.preferred);
  } catch (error) {
    if (error instanceof Fault && error.code === 'conflict') return start(ports.otherwise);
    throw error;
  }
}
