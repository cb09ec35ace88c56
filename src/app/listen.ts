/**
 * Starts and closes HTTP servers.
 */
import type { Server } from 'node:http';
import { Fault, messageOf } from '../core/fault.ts';

type Address = {
  /** Section of the configuration. */
  section: 'http' | 'metrics';
  host: string;
  port: number;
};

/** Starts the server and returns its URL. @throws Fault `conflict` when it can't listen there. */
export async function listen(server: Server, address: Address): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once('error', reject);
  server.listen(address.port, address.host, resolve);
  try {
    await promise;
  } catch (error) {
    throw listenFault(error, address);
  }
  const bound = server.address();
  const port = typeof bound === 'object' && bound !== null ? bound.port : address.port;
  return `http://${address.host.includes(':') ? `[${address.host}]` : address.host}:${port}`;
}

/** Closes the server with all its connections. */
export async function closeServer(server: Server): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  server.close(() => resolve());
  server.closeAllConnections();
  await promise;
}

/** The Fault for an address that a server can't listen on. */
export function listenFault(error: unknown, { section, host, port }: Address): Fault {
  const [here, name] = [`cannot listen on ${host}:${port}: ${messageOf(error)}`, section.toUpperCase()];
  const isUsed = error instanceof Error && 'code' in error && error.code === 'EADDRINUSE';
  const advice = isUsed
    ? `Change ${section}.port (CHAINBELL_${name}_PORT) or ${section}.host, or stop the program that uses the port`
    : `Change ${section}.host (CHAINBELL_${name}_HOST) or ${section}.port`;
  return new Fault('conflict', `${here}. ${advice}`);
}
