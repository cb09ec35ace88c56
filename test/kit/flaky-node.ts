/**
 * A proxy before a real node that changes some answers, as load balancers over nodes of unequal age do.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

export type Call = { id: unknown; method: string; params: unknown };

export type NodeProxy = {
  url: string;
  [Symbol.asyncDispose](): Promise<void>;
};

/** Forwards each call to the node at `nodeUrl` unless `rewrite` gives another one to be answered in its place. */
export async function startNodeProxy(nodeUrl: string, rewrite: (call: Call) => Call): Promise<NodeProxy> {
  const server = createServer((request, response) => {
    (async () => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk);
      const asked: Call | Call[] = JSON.parse(Buffer.concat(chunks).toString());
      const body = JSON.stringify(Array.isArray(asked) ? asked.map(rewrite) : rewrite(asked));
      const headers = { 'content-type': 'application/json' };
      const answer = await fetch(nodeUrl, { method: 'POST', headers, body });
      response.writeHead(answer.status, headers).end(await answer.text());
    })().catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    [Symbol.asyncDispose]: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
