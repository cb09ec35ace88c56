/**
 * A proxy in front of PostgreSQL that reports when certain statements pass, so that a test can end a process at that point.
 */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { tieSockets } from '../kit/tcp-proxy.ts';

/** These statements passed on one connection in this order: before the last one, or its response, is forwarded. */
export type Moment = { statements: readonly string[]; when: 'asked' | 'answered' };

type DatabaseProxy = {
  url: string;
  /** The writing statements so far, for example `insert into block`. */
  writes(): ReadonlySet<string>;
  [Symbol.asyncDispose](): Promise<void>;
};

const WRITE = /\b(?:insert into|update|delete from) (?!set\b|skip\b|of\b)[a-z_]+/g;

/**
 * Calls `onMoment` once. After that nothing passes in either direction. With `goesOn`, all current connections are closed and
 * new ones pass.
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
      // A message starts with the statement's text, and messages are far smaller than one read of the socket.
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
