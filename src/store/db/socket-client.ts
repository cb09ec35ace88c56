/**
 * A command's end of the socket: uses the embedded database of a running service.
 */
import { once } from 'node:events';
import { connect } from 'node:net';
import { Fault } from '../../core/fault.ts';
import type { Database, Db, SharedDatabase } from './db.ts';
import { isAccessDenied, otherUserFault } from './folder-fault.ts';
import { lockOwnerOf } from './folder-lock.ts';
import { eachBy } from './row-stream.ts';
import {
  type Frames,
  framesOf,
  isUnserved,
  PROTOCOL,
  pathProblem,
  type Reply,
  rowsOf,
  type SocketRequest,
  socketPathOf,
} from './socket-frames.ts';

type Connection = Frames<Reply, SocketRequest>;

/** A working service sends something every second, but a single long statement can delay that. */
const SILENCE_MS_MAX = 30_000;

/**
 * The database of the service that has the folder; undefined while none listens there. Check `pathProblem` first.
 * @throws Fault `unavailable` if the service sends nothing for `silenceMsMax`, `invalid` if this user may not connect to it
 */
export async function joinDatabase(
  dataDir: string,
  silenceMsMax = SILENCE_MS_MAX,
): Promise<SharedDatabase | undefined> {
  const path = socketPathOf(dataDir);
  const first = await open(path);
  if (first === undefined) return undefined;
  first.close();

  /** Lends a new connection to `work`. */
  async function lend<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    const connection = await open(path);
    if (connection === undefined) throw endedFault();
    try {
      return await work(connection);
    } finally {
      connection.close();
    }
  }

  async function ask<Row>(connection: Connection, request: SocketRequest): Promise<Row[]> {
    connection.write(request);
    for (;;) {
      const reply = await connection.read(silenceMsMax);
      if (reply === undefined)
        throw connection.isOver() ? endedFault() : await silentFault(dataDir, silenceMsMax);
      // The caller declares the row type for its statement, as with the driver.
      if (!('working' in reply)) return rowsOf(reply) as Row[];
    }
  }

  const query: Db['query'] = <Row>(statement: Parameters<Db['query']>[0]) =>
    lend((connection) => ask<Row>(connection, { ask: 'query', protocol: PROTOCOL, statement }));
  const database: Database = {
    kind: 'embedded',
    isServed: true,
    query,
    each: eachBy(query),
    transaction: (work) =>
      lend(async (connection) => {
        await ask(connection, { ask: 'begin', protocol: PROTOCOL });
        const result = await work({
          kind: 'transaction',
          query: (statement) => ask(connection, { ask: 'statement', statement }),
        });
        await ask(connection, { ask: 'commit' });
        return result;
      }),
    script: (text) =>
      lend(async (connection) => {
        await ask(connection, { ask: 'script', protocol: PROTOCOL, text });
      }),
    // The service and this command share a connection, so their locks would not exclude each other.
    session: () => Promise.reject(new Fault('conflict', 'only the service itself can have a session')),
    close: async () => {},
  };
  return { ...database, for: () => database, requireSessions: async () => {}, cut() {} };
}

/** Whether a service serves its database in this folder. False if the folder can't have a socket. @throws as joinDatabase */
export const isServed = async (dataDir: string): Promise<boolean> =>
  pathProblem(dataDir) === undefined && (await joinDatabase(dataDir)) !== undefined;

const endedFault = () =>
  new Fault('unavailable', 'the service that had the database has ended. Run the command again');

async function silentFault(dataDir: string, ms: number): Promise<Fault> {
  const pid = await lockOwnerOf(dataDir);
  const [who, how] = pid === undefined ? ['', ''] : [` (process ${pid})`, ` with kill -CONT ${pid}`];
  return new Fault(
    'unavailable',
    `the service that has the database${who} has sent nothing for ${ms / 1_000} s: it is suspended or overloaded. Continue it${how} or restart it, then run the command again. It may still carry out the current step when it continues`,
  );
}

/** Undefined when no process listens. */
async function open(path: string): Promise<Connection | undefined> {
  const socket = connect(path);
  const frames = framesOf<Reply, SocketRequest>(socket);
  try {
    await once(socket, 'connect');
    return frames;
  } catch (error) {
    if (isUnserved(error)) return undefined;
    if (isAccessDenied(error)) throw otherUserFault(path);
    throw new Fault('unavailable', `cannot reach the service at ${path}`, { cause: error });
  }
}
