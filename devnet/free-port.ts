/**
 * Ports of the loopback interface: finds a free one, because programs report a taken port late, and listens on it.
 */
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { Fault } from '../src/core/fault.ts';

/**
 * The port itself if it is free. For 0, any port that is free now.
 * @throws Fault `conflict` if the port is taken, or not permitted
 */
export async function findFreePort(port: number): Promise<number> {
  const server = createServer();
  const free = await listenOn(server, port);
  server.close();
  await once(server, 'close');
  return free;
}

/** Listens on the preferred port, or on another free one if that is taken. Returns the port. */
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

/** The preferred port, or another free one if that is taken. */
export async function findPortNear(preferred: number): Promise<number> {
  return retryOnConflict(findFreePort, { preferred, otherwise: 0 });
}

/**
 * Starts something on the preferred ports, and on other ones after a conflict, because a free port may be taken meanwhile.
 * @throws the errors of both starts, except a Fault `conflict` of the first one
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
