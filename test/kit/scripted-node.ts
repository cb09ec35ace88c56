/**
 * A chain node that a test scripts: JSON-RPC over real HTTP, from a table of methods that may change at any time.
 */
import { type Answer, type AnswerTo, startReceiver } from './receiver.ts';

/** Returns the result of a call. Throws RpcError where the node responds with a JSON-RPC error, HttpRefusal for an HTTP error. */
export type Method = (params: readonly unknown[]) => unknown;
export type Methods = Record<string, Method>;
export type Json = Record<string, unknown>;

/** A block as a node returns it: eth_getBlockBy…, eth_getBlockReceipts, and the result of every trace method. */
export type NodeBlock = { block: Json; receipts: Json[]; traces?: unknown };

export class RpcError extends Error {
  override readonly name = 'RpcError';
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

/** Makes the whole HTTP response this status, as gateways do that block a method. */
export class HttpRefusal extends Error {
  override readonly name = 'HttpRefusal';
  readonly status: number;

  constructor(status: number) {
    super(`HTTP ${status}`);
    this.status = status;
  }
}

export type ScriptedNode = {
  /** The URL has a path that must not appear in logs, errors or metrics. */
  url: string;
  /** The supported methods. Other methods return error -32601. */
  methods: Methods;
  /** error: one error object with a null id, as nodes without batches return. Batches above callsMax get the same. */
  batches: 'answer' | 'error' | 'http 400' | { callsMax: number };
  /** All calls so far, including those in batches. */
  calls: { method: string; params: readonly unknown[] }[];
  /** The number of HTTP requests so far. */
  exchangeCount(): number;
  /** Sends this response to every request, until it is set to undefined. */
  setHttp(answer: Answer | AnswerTo | undefined): void;
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

export const SECRET_PATH = '/v2/path-with-a-key';

/** Starts a node with these methods. It is listening when the promise resolves. */
export async function startScriptedNode(methods: Methods = {}): Promise<ScriptedNode> {
  const receiver = await startReceiver({ answer: ({ body }) => answerOrRefuse(body) });
  const node: ScriptedNode = {
    url: `http://127.0.0.1:${receiver.port}${SECRET_PATH}`,
    methods,
    batches: 'answer',
    calls: [],
    exchangeCount: () => receiver.requests.length,
    setHttp(answer) {
      receiver.setAnswer(answer ?? (({ body }) => answerOrRefuse(body)));
    },
    close: receiver.close,
    [Symbol.asyncDispose]: receiver.close,
  };
  return node;

  function answerOrRefuse(body: string): Answer {
    try {
      return answerBody(body);
    } catch (error) {
      if (!(error instanceof HttpRefusal)) throw error;
      return { status: error.status, body: '<html>refused</html>' };
    }
  }

  function answerBody(body: string): Answer {
    const message: unknown = JSON.parse(body);
    if (!Array.isArray(message)) return { body: JSON.stringify(answerOne(message as Json)) };
    if (node.batches === 'http 400') return { status: 400, body: 'batches are not supported' };
    const refuse = (text: string) => ({
      body: JSON.stringify({ jsonrpc: '2.0', id: null, error: { code: -32_600, message: text } }),
    });
    if (node.batches === 'error') return refuse('batches are not supported');
    if (node.batches !== 'answer' && message.length > node.batches.callsMax) return refuse('batch too large');
    return { body: JSON.stringify(message.map(answerOne)) };
  }

  function answerOne({ id, method, params }: Json): Json {
    const name = String(method);
    const given = Array.isArray(params) ? params : [];
    node.calls.push({ method: name, params: given });
    const answer = node.methods[name];
    if (answer === undefined) {
      return { jsonrpc: '2.0', id, error: { code: -32_601, message: `the method ${name} does not exist` } };
    }
    try {
      return { jsonrpc: '2.0', id, result: answer(given) };
    } catch (error) {
      if (!(error instanceof RpcError)) throw error;
      return { jsonrpc: '2.0', id, error: { code: error.code, message: error.message } };
    }
  }
}

/** The methods of a node on this chain. `blocks` may change; the last one is the head. Traces and block tags are separate. */
export function chainMethods(chainId: number, blocks: readonly NodeBlock[]): Methods {
  const find = (reference: unknown) =>
    reference === 'latest'
      ? blocks.at(-1)
      : blocks.find(({ block }) => block.hash === reference || block.number === reference);
  const findBlock: Method = ([reference]) => find(reference)?.block ?? null;
  return {
    web3_clientVersion: () => 'scripted/1.0',
    eth_chainId: () => `0x${chainId.toString(16)}`,
    eth_getBlockByNumber: findBlock,
    eth_getBlockByHash: findBlock,
    eth_getBlockReceipts: ([reference]) => find(reference)?.receipts ?? null,
    eth_getTransactionReceipt: ([hash]) =>
      blocks.flatMap(({ receipts }) => receipts).find((receipt) => receipt.transactionHash === hash) ?? null,
  };
}

/** A method that returns the traces of a block of `blocks`. Works for every trace method. */
export function traceMethod(blocks: readonly NodeBlock[]): Method {
  return ([reference]) => {
    const found = blocks.find(({ block }) => block.hash === reference || block.number === reference);
    if (found?.traces === undefined) throw new RpcError(-32_000, 'block not found');
    return found.traces;
  };
}

/**
 * A block of native transfers. Each has a receipt and a call trace with one internal transfer of 1 wei. Blocks of another
 * `branch` have different hashes.
 */
export function makeNodeBlock(
  number: number,
  options: { transactions?: number; branch?: number } = {},
): NodeBlock {
  const { transactions = 2, branch = 0 } = options;
  const blockHash = makeHash(branch, number, 0);
  const hashes = Array.from({ length: transactions }, (_, index) => makeHash(branch, number, index + 1));
  return {
    block: {
      number: `0x${number.toString(16)}`,
      hash: blockHash,
      parentHash: makeHash(branch, number - 1, 0),
      timestamp: `0x${(1_700_000_000 + number).toString(16)}`,
      transactions: hashes.map((hash) => ({ hash, from: makeAddress(1), to: makeAddress(2), value: '0x10' })),
    },
    receipts: hashes.map((transactionHash) => ({ transactionHash, blockHash, status: '0x1', logs: [] })),
    traces: hashes.map((txHash) => ({
      txHash,
      result: {
        ...{ type: 'CALL', from: makeAddress(1), to: makeAddress(2), value: '0x10' },
        calls: [{ type: 'CALL', from: makeAddress(2), to: makeAddress(3), value: '0x1' }],
      },
    })),
  };
}

/** A made-up 32-byte hash that encodes branch, block number and position. Position 0 is the block itself. */
export function makeHash(branch: number, number: number, position: number): `0x${string}` {
  const text = [branch, Math.max(0, number), position]
    .map((part) => part.toString(16).padStart(16, '0'))
    .join('');
  return `0x${text.padStart(64, 'f')}`;
}

/** The address with this number. */
export function makeAddress(number: number): `0x${string}` {
  return `0x${number.toString(16).padStart(40, '0')}`;
}
