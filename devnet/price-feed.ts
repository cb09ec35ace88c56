/**
 * A price service on this machine, like one on the internet: the current USD prices of the demo's coins.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { listenNear } from './free-port.ts';
import { isPriced, usdPriceAt } from './prices.ts';

export type PriceFeed = {
  /** http://127.0.0.1:port, which answers `{"price": …}` at /<symbol>. */
  url: string;
  stop(): Promise<void>;
};

/** Listens on loopback, on another port if the preferred one is taken. 0 means any free port. */
export async function startPriceFeed(options: { preferredPort: number; now(): Date }): Promise<PriceFeed> {
  const server = createServer((request, response) => {
    const symbol = request.url?.slice(1).toUpperCase() ?? '';
    const now = options.now();
    const isThere = request.method === 'GET' && isPriced(symbol);
    const answer = isThere
      ? { symbol, price: Number(usdPriceAt(symbol, now).toPrecision(8)), at: now.toISOString() }
      : { error: `no price at ${request.method} ${request.url}` };
    response.writeHead(isThere ? 200 : 404, { 'content-type': 'application/json' });
    response.end(`${JSON.stringify(answer)}\n`);
  });
  const port = await listenNear(server, options.preferredPort);
  return {
    url: `http://127.0.0.1:${port}`,
    async stop() {
      if (!server.listening) return;
      const closed = once(server, 'close');
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
