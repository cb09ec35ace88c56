/**
 * A PostgreSQL that is watched: tells when certain statements pass, so that a test can end a process right there.
 */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { tieSockets } from '../kit/tcp-proxy.ts';

/** When these have passed on one connection, one after the other: before the last is forwarded, or its answer is. */
export type Moment = { statements: readonly string[]; when: 'asked' | 'answered' };

type DatabaseProxy = {
  url: string;
  /** The statements that wrote so far, as `insert into block`. */
  writes(): ReadonlySet<string>;
  [Symbol.asyncDispose](): Promise<void>;
};

const WRITE = /\b(?:insert into|update|delete from) (?!set\b|skip\b|of\b)[a-z_]+/g;

/**
 * Calls `onMoment` once. From then on nothing passes in either direction, or, with `goesOn`, all connections of then are
 * broken and new ones pass.
 */
export async function startDatabaseProxy(
  url: string,
  { statements, when }: Moment,
  onMoment: () => void,
  { goesOn = false } = {},
): Promise<DatabaseProxy> {
  const target = new URL(url);
  const sockets = new Set<Socket>();
  const writes = new Set<string>();
  let hasCome = false;
  let isOver = false;
  const end = () => {
    if (hasCome) return;
    hasCome = true;
    isOver = !goesOn;
    onMoment();
    if (goesOn) for (const socket of sockets) socket.destroy();
  };
  const server = createServer((client) => {
    const postgres = connect(Number(target.port), target.hostname);
    let passed = 0;
    client.on('data', (bytes) => {
      // A statement's text begins its message, and messages are far smaller than what a socket reads at once.
      const text = bytes.toString('latin1');
      for (const [write] of text.matchAll(WRITE)) writes.add(write);
      for (let statement = statements[passed]; statement !== undefined && text.includes(statement); ) {
        passed += 1;
        statement = statements[passed];
      }
      if (passed === statements.length && when === 'asked') end();
      if (!isOver && !client.destroyed) postgres.write(bytes);
    });
    postgres.on('data', (bytes) => {
      if (passed === statements.length) end();
      if (!isOver && !client.destroyed) client.write(bytes);
    });
    tieSockets(client, postgres, sockets);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('the proxy has no port');
  const own = new URL(url);
  own.host = `127.0.0.1:${address.port}`;
  return {
    url: own.href,
    writes: () => writes,
    async [Symbol.asyncDispose]() {
      const closed = once(server, 'close');
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}
