/**
 * The service's end of the socket in the data folder. Through it commands run statements on the embedded database, alternating
 * with the service's own work.
 */
import { chmod, rm } from 'node:fs/promises';
import { createServer, type Server, type Socket } from 'node:net';
import { machineSteadyMs, waitMs } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { Database, Tx } from './db.ts';
import {
  type Frames,
  framesOf,
  PROTOCOL,
  pathProblem,
  type Reply,
  replyOf,
  type SocketRequest,
  socketPathOf,
  WORKING_MS,
} from './socket-frames.ts';

/** Commands run a few statements at once, each on its own connection. */
const CONNECTIONS_MAX = 64;
/** How long a new connection may stay silent. */
const FIRST_REQUEST_MS_MAX = 10_000;
/** Limits between two statements and for a whole transaction, because an open one blocks the database's only connection. */
const IDLE_MS_MAX = 2_000;
const TRANSACTION_MS_MAX = 15_000;

export type DatabaseSocket = { path: string; close(): Promise<void> };

/**
 * Serves the database to this user's commands. The caller has the folder's lock, so an existing socket belongs to a process that
 * was killed. @throws Fault `invalid` if the folder's path is too long for a socket
 */
export async function serveDatabase(database: Database, dataDir: string): Promise<DatabaseSocket> {
  const path = socketPathOf(dataDir);
  const problem = pathProblem(dataDir);
  if (problem !== undefined) throw new Fault('invalid', problem);
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    // Errors have been sent as a reply already, or mean that the connection has ended.
    answer(framesOf<SocketRequest, Reply>(socket), database).catch(() => socket.destroy());
  });
  server.maxConnections = CONNECTIONS_MAX;
  await rm(path, { force: true });
  await listen(server, path);
  await chmod(path, 0o600);
  return {
    path,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        for (const socket of sockets) socket.destroy();
      }),
  };
}

function listen(server: Server, path: string): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen(path, () => {
      server.off('error', reject);
      resolve();
    });
  });
}

async function answer(frames: Frames<SocketRequest, Reply>, database: Database): Promise<void> {
  try {
    const request = await frames.read(FIRST_REQUEST_MS_MAX);
    if (request === undefined) return;
    frames.write({ rows: await reportingWork(frames, () => rowsFor(request, frames, database)) });
  } catch (error) {
    frames.write(replyOf(error));
  } finally {
    frames.close();
  }
}

/** Sends regular signs of life during the work, because the other side takes a silent service for a suspended one. */
async function reportingWork<T>(frames: Frames<SocketRequest, Reply>, work: () => Promise<T>): Promise<T> {
  const ended = new AbortController();
  const reporting = (async () => {
    for (;;) {
      await waitMs(WORKING_MS, ended.signal);
      if (ended.signal.aborted) return;
      frames.write({ working: true });
    }
  })();
  try {
    return await work();
  } finally {
    ended.abort();
    await reporting;
  }
}

async function rowsFor(
  request: SocketRequest,
  frames: Frames<SocketRequest, Reply>,
  database: Database,
): Promise<unknown[]> {
  if (!('protocol' in request) || request.protocol !== PROTOCOL)
    throw new Fault(
      'conflict',
      'the running service has another version than this command. Use the chainbell of the service, or restart the service',
    );
  switch (request.ask) {
    case 'query':
      return database.query(request.statement);
    case 'script':
      await database.script(request.text);
      return [];
    case 'begin':
      await database.transaction((tx) => runTransaction(tx, frames));
      return [];
  }
}

/** Runs the statements of a transaction as they arrive, until the other side commits. @throws to roll it back. */
async function runTransaction(tx: Tx, frames: Frames<SocketRequest, Reply>): Promise<void> {
  const untilMs = machineSteadyMs() + TRANSACTION_MS_MAX;
  frames.write({ rows: [] });
  for (;;) {
    const leftMs = Math.max(0, untilMs - machineSteadyMs());
    const request = await frames.read(Math.min(leftMs, IDLE_MS_MAX));
    if (request === undefined)
      throw new Fault(
        'unavailable',
        `the transaction was rolled back because it blocked the embedded database for too long: it may take ${TRANSACTION_MS_MAX / 1_000} s, and ${IDLE_MS_MAX / 1_000} s between two statements`,
      );
    if (request.ask === 'commit') return;
    if (request.ask !== 'statement') throw new Fault('conflict', `${request.ask} in a transaction`);
    frames.write(await tx.query(request.statement).then((rows): Reply => ({ rows }), replyOf));
  }
}
