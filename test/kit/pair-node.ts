/**
 * The replayed real chain, extended with eth_call: it answers as the contracts of pairs would.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { encodeWord } from '../../src/core/abi.ts';
import { type Hash, type Hex, zeroAddress } from '../../src/core/hex.ts';
import type { Pair } from '../../src/domain/pair.ts';

type PairNode = { url: string; [Symbol.asyncDispose](): Promise<void> };

type Call = { id: unknown; method: string; params?: [{ to: string; data: string }, { blockHash: Hash }] };

/** The results of getReserves and totalSupply at a block. Undefined when the node does not have that state. */
type ReadPool = (
  pair: Pair,
  blockHash: Hash,
) => { reserve0: bigint; reserve1: bigint; totalSupply: bigint } | undefined;

/** Forwards everything except eth_call to the node at `url`. Pairs have no factory. */
export async function startPairNode(
  url: string,
  pairs: readonly Pair[],
  readPool: ReadPool,
): Promise<PairNode> {
  const byAddress = new Map<string, Pair>(pairs.map((pair) => [pair.address, pair]));
  const decimalsOf = new Map<string, number>(
    pairs.flatMap((pair) => [
      [pair.token0, pair.token0Decimals],
      [pair.token1, pair.token1Decimals],
    ]),
  );
  const answer = async (call: Call): Promise<unknown> => {
    if (call.method !== 'eth_call') return post(url, call);
    const data = contractAnswer(call.params);
    const error = { code: -32_000, message: 'missing trie node' };
    return { jsonrpc: '2.0', id: call.id, ...(data === undefined ? { error } : { result: data }) };
  };
  const respond = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const body: unknown = JSON.parse(await readBody(request));
    const result = Array.isArray(body) ? await Promise.all(body.map(answer)) : await answer(body as Call);
    response.setHeader('content-type', 'application/json').end(JSON.stringify(result));
  };
  const server = createServer((request, response) => {
    // A failure closes the connection, like a node that hangs up.
    respond(request, response).catch(() => response.destroy());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('no port is free');
  return {
    url: `http://127.0.0.1:${address.port}`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };

  function contractAnswer(params: Call['params']): Hex | undefined {
    if (params === undefined) return undefined;
    const [{ to, data }, { blockHash }] = params;
    const pair = byAddress.get(to);
    const decimals = decimalsOf.get(to);
    if (data === '0x313ce567' && decimals !== undefined) return words(BigInt(decimals));
    if (pair === undefined) return '0x';
    if (data === '0x0dfe1681') return words(BigInt(pair.token0));
    if (data === '0xd21220a7') return words(BigInt(pair.token1));
    if (data === '0xc45a0155') return words(BigInt(zeroAddress));
    if (data === '0x7464fc3d') return words(0n);
    const pool = readPool(pair, blockHash);
    if (pool === undefined) return undefined;
    if (data === '0x0902f1ac') return words(pool.reserve0, pool.reserve1, 0n);
    if (data === '0x18160ddd') return words(pool.totalSupply);
    return '0x';
  }
}

const words = (...values: bigint[]): Hex => `0x${values.map(encodeWord).join('')}`;

async function post(url: string, body: unknown): Promise<unknown> {
  return (await fetch(url, { method: 'POST', body: JSON.stringify(body) })).json();
}

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}
