/**
 * The protocol between a command and the service that has the embedded database: each value is preceded by its length, and
 * serialized by the structured clone algorithm, which keeps bytes, times and integers. A connection carries one statement, one
 * script or one transaction.
 */
import type { Socket } from 'node:net';
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { deserialize, serialize } from 'node:v8';
import { abortOf } from '../../core/abort.ts';
import { waitMs } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { Sql } from './sql.ts';

/** Both sides must be of one, because the program may have been updated while its service runs. */
export const PROTOCOL = 2;

/** A request of a command. After `begin` come statements, up to `commit` or the end of the connection. */
export type Question =
  | { ask: 'query'; protocol: number; statement: Sql }
  | { ask: 'script'; protocol: number; text: string }
  | { ask: 'begin'; protocol: number }
  | { ask: 'statement'; statement: Sql }
  | { ask: 'commit' };

/** How often the service says that it still works on a question. */
export const WORKING_MS = 1_000;

/**
 * `working` comes any number of times before the reply proper. `sqlState` is that of PostgreSQL, or the code of a socket's or
 * file's error.
 */
export type Reply =
  | { working: true }
  | { rows: unknown[] }
  | { error: { message: string; fault: Fault['code'] | undefined; sqlState: string | undefined } };

export type Frames<In, Out> = {
  /** The next value; undefined when the other side has ended, or after `timeoutMs`. */
  read(timeoutMs?: number): Promise<In | undefined>;
  write(value: Out): void;
  /** Whether the other side has ended. */
  isOver(): boolean;
  close(): void;
};

/** A batch of an import has about a megabyte. */
const FRAME_BYTES_MAX = 64 * 1024 * 1024;
const LENGTH_BYTES = 4;

/** Where the service that has the folder listens. */
export const socketPathOf = (dataDir: string) => path.join(path.resolve(dataDir), 'socket');

/** What sockaddr_un takes, without its last byte: 108 on Linux, 104 on macOS and BSD. */
const PATH_BYTES_MAX = process.platform === 'linux' ? 107 : 103;

/** Why there can be no socket in the folder, and what to do; undefined where there can. */
export function pathProblem(dataDir: string): string | undefined {
  if (process.platform === 'win32')
    return 'On Windows commands cannot use the embedded database while a service has it: stop it first';
  const socketPath = socketPathOf(dataDir);
  const bytes = Buffer.byteLength(socketPath);
  if (bytes <= PATH_BYTES_MAX) return undefined;
  return `${socketPath} has ${bytes} bytes, and the path of a socket at most ${PATH_BYTES_MAX}: give dataDir a shorter path, so that commands work while the service runs`;
}

/** Values in both directions; what the other side sends must be of our program. */
export function framesOf<In, Out>(socket: Socket): Frames<In, Out> {
  const values: In[] = [];
  let bytes: Buffer[] = [];
  let length = 0;
  let wanted: number | undefined;
  let isOver = false;
  let wake = () => {};

  /** The first bytes of what has come; undefined until there are so many. */
  function take(count: number): Buffer | undefined {
    if (length < count) return undefined;
    const all = bytes.length === 1 && bytes[0] !== undefined ? bytes[0] : Buffer.concat(bytes);
    bytes = [all.subarray(count)];
    length -= count;
    return all.subarray(0, count);
  }

  socket.on('data', (chunk: Buffer) => {
    bytes.push(chunk);
    length += chunk.length;
    for (;;) {
      wanted ??= take(LENGTH_BYTES)?.readUInt32BE();
      if (wanted === undefined) break;
      if (wanted > FRAME_BYTES_MAX) {
        socket.destroy();
        return;
      }
      const value = take(wanted);
      if (value === undefined) break;
      wanted = undefined;
      try {
        values.push(deserialize(value));
      } catch {
        socket.destroy();
        return;
      }
    }
    wake();
  });
  // `close` follows, and ends the read.
  socket.on('error', () => {});
  socket.on('close', () => {
    isOver = true;
    wake();
  });

  return {
    async read(timeoutMs) {
      if (values.length === 0 && !isOver) {
        const arrival = new AbortController();
        wake = () => arrival.abort();
        if (timeoutMs === undefined) await abortOf(arrival.signal);
        else await waitMs(timeoutMs, arrival.signal);
        // A process that was busy for as long finds its timer before what has arrived meanwhile.
        if (values.length === 0 && !isOver) await nextTurn();
        if (values.length === 0 && !isOver) await nextTurn();
      }
      return values.shift();
    },
    write(value) {
      const body = serialize(value);
      const header = Buffer.alloc(LENGTH_BYTES);
      header.writeUInt32BE(body.length);
      socket.write(Buffer.concat([header, body]));
    },
    isOver: () => isOver,
    close: () => socket.destroySoon(),
  };
}

/** An error as the other side gets it. */
export function replyOf(error: unknown): Reply {
  const cause = error instanceof Fault && error.cause instanceof Error ? error.cause : error;
  const code = typeof cause === 'object' && cause !== null && 'code' in cause ? cause.code : undefined;
  return {
    error: {
      message: error instanceof Error ? error.message : String(error),
      fault: error instanceof Fault ? error.code : undefined,
      sqlState: typeof code === 'string' ? code : undefined,
    },
  };
}

/** The rows of a reply. @throws the error that it holds, as the database would have thrown it here. */
export function rowsOf(reply: Exclude<Reply, { working: true }>): unknown[] {
  if ('rows' in reply) return reply.rows;
  const { message, fault, sqlState } = reply.error;
  const own = Object.assign(new Error(message), sqlState === undefined ? {} : { code: sqlState });
  throw fault === undefined ? own : new Fault(fault, message, { cause: own });
}
