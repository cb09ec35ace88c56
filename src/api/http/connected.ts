/**
 * Requests of clients that have hung up.
 */
import type { FastifyRequest } from 'fastify';
import { Fault } from '../../core/fault.ts';

/**
 * Checks that the client is still there. A closed connection emits no further `close`, so whatever waits for that event first
 * makes this check: otherwise a client that left while its key was checked would hold it until the process ends.
 * @throws Fault `limited`, which no client receives
 */
export function requireConnected(request: FastifyRequest): void {
  if (request.socket.destroyed) throw new Fault('limited', 'the client has hung up');
}
