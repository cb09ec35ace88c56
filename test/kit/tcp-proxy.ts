/**
 * A TCP proxy between a test and a server on loopback. The test can cut its connections.
 */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';

export type TcpProxy = {
  port: number;
  /** The destination of new connections. Changing it moves the address to another server. */
  target: { host: string; port: number };
  /** Closes every connection and refuses new ones. */
  cut(): Promise<void>;
  /** Accepts connections again, on the same port. */
  mend(): Promise<void>;
  /**
   * Keeps every connection open and accepts new ones, but forwards nothing, as if the server's processes were stopped (SIGSTOP). Or
   * forwards only in the other direction.
   */
  freeze(what?: 'all' | 'requests' | 'answers'): void;
  /** Forwards nothing on the connections that are open now, as if something on the way had forgotten them. New ones work. */
  forget(): void;
  /** Forwards again, first what was sent since. */
  thaw(): void;
  /**
   * Closes the next connection on which a client sends this text, after forwarding it: the server has the request, but the
   * client gets no response. Resolves then.
   */
  cutAt(text: string): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** Forwards a free loopback port to `target`. */
export async function startTcpProxy(target: { host: string; port: number }): Promise<TcpProxy> {
  const proxied = { target };
  const sockets = new Set<Socket>();
  const pairs = new Set<[Socket, Socket]>();
  const traps = new Map<string, () => void>();
  let frozen: 'all' | 'requests' | 'answers' | undefined;
  let server: Server;
  let port = 0;
  async function listen(): Promise<void> {
    server = createServer((inner) => {
      const outer = connect(proxied.target);
      tieSockets(inner, outer, sockets);
      const pair: [Socket, Socket] = [inner, outer];
      pairs.add(pair);
      inner.on('close', () => pairs.delete(pair));
      hold(pair);
      // Runs after the pipe's listener, so the bytes have been forwarded.
      inner.on('data', (bytes) => {
        for (const [text, spring] of traps) {
          if (!bytes.includes(text)) continue;
          traps.delete(text);
          inner.destroy();
          spring();
        }
      });
      // The listener above lets it flow.
      if (frozen !== undefined) hold(pair);
    });
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    if (typeof address !== 'object' || address === null) throw new Error('the proxy has no port');
    port = address.port;
  }
  async function cut(): Promise<void> {
    if (!server.listening) return;
    const closed = once(server, 'close');
    server.close();
    for (const socket of sockets) socket.destroy();
    await closed;
  }
  /** Stops the flow in the frozen directions, and lets it flow in the others. */
  function hold([inner, outer]: [Socket, Socket]): void {
    for (const [what, from, to] of [
      ['requests', inner, outer] as const,
      ['answers', outer, inner] as const,
    ]) {
      from.unpipe();
      if (frozen === 'all' || frozen === what) from.pause();
      else from.pipe(to);
    }
  }
  function forget(): void {
    for (const pair of pairs) {
      pairs.delete(pair);
      for (const socket of pair) socket.unpipe().pause();
    }
  }
  const freeze: TcpProxy['freeze'] = (what = 'all') => {
    frozen = what;
    for (const pair of pairs) hold(pair);
  };
  function thaw(): void {
    frozen = undefined;
    for (const pair of pairs) hold(pair);
  }
  await listen();
  return Object.assign(proxied, {
    port,
    cut,
    mend: listen,
    freeze,
    forget,
    thaw,
    cutAt: (text: string) => new Promise<void>((resolve) => traps.set(text, resolve)),
    [Symbol.asyncDispose]: cut,
  });
}

/** Ties two sockets: each ends when the other ends. Both stay in `open` while they are alive. */
export function tieSockets(one: Socket, other: Socket, open: Set<Socket>): void {
  for (const [from, to] of [
    [one, other],
    [other, one],
  ] as const) {
    open.add(from);
    from.on('error', () => to.destroy());
    from.on('close', () => {
      open.delete(from);
      to.destroy();
    });
  }
}
