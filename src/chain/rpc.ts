/**
 * JSON-RPC over HTTP to one node: single calls and batches, with a deadline, a size limit and typed errors.
 */
import { Agent, request } from 'undici';
import { startAbort } from '../core/abort.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Metrics } from '../core/metrics.ts';

export type RpcCall = { method: string; params: readonly unknown[] };
export type RpcAnswer = { ok: true; result: unknown } | { ok: false; code: number; message: string };

export type Rpc = {
  /** scheme://host, for logs: the path may hold a key. */
  readonly name: string;
  /** The answers in the order of the calls, in one HTTP exchange. @throws Fault `unavailable`. */
  batch(calls: readonly RpcCall[], signal: AbortSignal): Promise<RpcAnswer[]>;
  /** One call's result. @throws Fault `unavailable` for transport errors and for JSON-RPC errors. */
  call(method: string, params: readonly unknown[], signal: AbortSignal): Promise<unknown>;
  close(): Promise<void>;
};

/** A traced mainnet block can take seconds; beyond this the node is taken for dead. */
const REQUEST_MS_MAX = 30_000;
/** The largest answer read: some 50 traced mainnet blocks. */
const ANSWER_BYTES_MAX = 256 * 1024 * 1024;
const CONNECTIONS_MAX = 8;
/** What a node says goes to the log and to the status page; some send whole stack traces. */
const MESSAGE_CHARACTERS_MAX = 500;
/** JSON-RPC 2.0 section 5.1, and what nodes say instead of it. */
const METHOD_NOT_FOUND = -32_601;

export function createRpc(url: string, metrics: Metrics): Rpc {
  const name = new URL(url).origin;
  const agent = new Agent({ connections: CONNECTIONS_MAX, maxResponseSize: ANSWER_BYTES_MAX });
  let lastId = 0;

  async function post(body: string, signal: AbortSignal): Promise<unknown> {
    const limit = startAbort(signal, REQUEST_MS_MAX);
    const stop = metrics.rpcSeconds.startTimer({ node: name });
    try {
      const {
        statusCode,
        headers,
        body: answer,
      } = await request(url, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body,
        dispatcher: agent,
        signal: limit.signal,
      });
      const text = await answer.text();
      if (statusCode !== 200) {
        // Some say by HTTP 400 what belongs into a JSON-RPC error: that they lack a method.
        const refusal = statusCode === 400 ? parseRefusal(text) : undefined;
        if (refusal !== undefined) return refusal;
        const wait =
          headers['retry-after'] === undefined ? '' : `, retry-after ${String(headers['retry-after'])}`;
        throw new Fault('unavailable', `${name} answered HTTP ${statusCode}${wait}`);
      }
      return JSON.parse(text);
    } catch (error) {
      if (error instanceof Fault) throw error;
      throw new Fault('unavailable', `${name}: ${messageOf(error)}`, { cause: error });
    } finally {
      limit.release();
      stop();
    }
  }

  const count = (call: RpcCall, outcome: 'ok' | 'error' | 'failed') =>
    metrics.rpcRequests.inc({ node: name, method: call.method, outcome });

  const rpc: Rpc = {
    name,
    async batch(calls, signal) {
      if (calls.length === 0) return [];
      const ids = calls.map(() => ++lastId);
      const messages = calls.map((call, index) => ({ jsonrpc: '2.0', id: ids[index], ...call }));
      let answers: unknown;
      try {
        answers = await post(JSON.stringify(messages.length === 1 ? messages[0] : messages), signal);
      } catch (error) {
        for (const call of calls) count(call, 'failed');
        throw error;
      }
      const byId = new Map<unknown, RpcAnswer>();
      for (const answer of Array.isArray(answers) ? answers : [answers]) {
        if (isRecord(answer)) byId.set(answer.id, parseAnswer(answer));
      }
      return calls.map((call, index) => {
        // A node that cannot batch answers a batch with one error object whose id is null.
        const answer = byId.get(ids[index]) ?? byId.get(null);
        if (answer === undefined) throw new Fault('inconsistent', `${name} left ${call.method} unanswered`);
        count(call, answer.ok ? 'ok' : 'error');
        return answer;
      });
    },
    async call(method, params, signal) {
      const [answer] = await rpc.batch([{ method, params }], signal);
      return resultOf(rpc, method, answer);
    },
    close: () => agent.destroy(),
  };
  return rpc;
}

/** The result of an answer. @throws Fault `unavailable` when it is an error. */
export function resultOf(rpc: Rpc, method: string, answer: RpcAnswer | undefined): unknown {
  if (answer?.ok === true) return answer.result;
  throw new Fault(
    'unavailable',
    `${rpc.name} ${method}: ${answer?.message ?? 'no answer'} (${answer?.code})`,
  );
}

/** Whether the answer says that the node does not have the method at all ("header not found" does not). */
export function lacksMethod(answer: RpcAnswer | undefined): boolean {
  if (answer === undefined || answer.ok) return false;
  return answer.code === METHOD_NOT_FOUND || LACKS_METHOD.test(answer.message);
}

/** Whether the answer says that too much was asked for the moment; then it says nothing about what the node can do. */
export function isLimited(answer: RpcAnswer | undefined): boolean {
  if (answer === undefined || answer.ok) return false;
  return answer.code === LIMIT_EXCEEDED || IS_LIMITED.test(answer.message);
}

/** EIP-1474; and how nodes say it that use another error code. */
const LIMIT_EXCEEDED = -32_005;
const IS_LIMITED =
  /rate.?limit|too many requests|(request|daily).*(limit|exceeded)|exceeded.*(capacity|limit)/i;

/** How nodes say it that use another error code. */
const LACKS_METHOD =
  /method.*(not (be )?(found|available|supported|exist|allowed)|unavailable)|(unsupported|unknown|invalid) method/i;

function parseAnswer(answer: Record<string, unknown>): RpcAnswer {
  if (!isRecord(answer.error)) return { ok: true, result: answer.result };
  const { code, message } = answer.error;
  const text =
    typeof message === 'string' ? message.slice(0, MESSAGE_CHARACTERS_MAX) : 'an error without a message';
  return { ok: false, code: typeof code === 'number' ? code : 0, message: text };
}

/** The JSON-RPC error in the body of an HTTP error; undefined when it is anything else. */
function parseRefusal(text: string): unknown {
  try {
    const answer: unknown = JSON.parse(text);
    return isRecord(answer) && isRecord(answer.error) ? answer : undefined;
  } catch {
    return undefined;
  }
}

/** A JSON object, of which nothing more is known. */
export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
