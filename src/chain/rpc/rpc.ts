/**
 * JSON-RPC over HTTP to one node: single calls and batches, with a deadline, a size limit and typed errors,
 * within the limits that the node has shown.
 */
import { Agent, errors, request } from 'undici';
import { startAbort } from '../../core/abort.ts';
import { splitCredentials } from '../../core/basic-auth.ts';
import { type Clock, systemClock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import { isRecord } from '../../core/json.ts';
import type { Metrics } from '../../core/metrics.ts';
import { redactorOf } from '../../core/redact.ts';
import { type CallOutcome, createHealth, type Health } from './health.ts';
import { type Limit, limitOfError, limitOfHttp } from './node-limits.ts';
import { CONCURRENCY_MAX, createThrottle, type Throttle } from './throttle.ts';

export type RpcCall = { method: string; params: readonly unknown[] };
export type RpcAnswer =
  | { ok: true; result: unknown }
  | { ok: false; code: number; message: string; limit?: Limit };

export type Rpc = {
  /** scheme://host, for logs: the path may hold a key. */
  readonly name: string;
  /**
   * The answers in the order of the calls, in one HTTP exchange unless the node has shown that it takes
   * smaller batches.
   * @throws Fault `unavailable`, at once when the node limits requests.
   */
  batch(calls: readonly RpcCall[], signal: AbortSignal): Promise<RpcAnswer[]>;
  /** One call's result. @throws Fault `unavailable` for transport errors and for JSON-RPC errors. */
  call(method: string, params: readonly unknown[], signal: AbortSignal): Promise<unknown>;
  close(): Promise<void>;
};

/** Called with each piece of an answer as it arrives. */
export type OnBytes = (bytes: number) => void;

/** With what was learned of the node. */
export type LearningRpc = Rpc & {
  readonly throttle: Throttle;
  readonly health: Health;
  /** The same node; what it answers is counted. */
  counted(onBytes: OnBytes): LearningRpc;
};

/** How the calls of one caller are made. */
type Manner = { patienceMs: number; onBytes: OnBytes };

export type NodeRpc = LearningRpc & {
  /**
   * The same, but waits while the node limits requests, and asks again for what it refused, up to
   * PATIENCE_MS_MAX.
   */
  readonly patient: LearningRpc;
};

/** A traced mainnet block can take seconds; beyond this the node is taken for dead. */
const REQUEST_MS_MAX = 30_000;
/** As for an answer: who waits longer should hear why. */
const PATIENCE_MS_MAX = REQUEST_MS_MAX;
/** The largest answer read: some 50 traced mainnet blocks. */
const ANSWER_BYTES_MAX = 256 * 1024 * 1024;
/** What a node says goes to the log and to the status page; some send whole stack traces. */
const MESSAGE_CHARACTERS_MAX = 500;
/** JSON-RPC 2.0 section 5.1, and what nodes say instead of it. */
const METHOD_NOT_FOUND = -32_601;

export function createRpc(url: string, metrics: Metrics, clock: Clock = systemClock()): NodeRpc {
  const name = new URL(url).origin;
  const redact = redactorOf(url);
  const target = splitCredentials(url);
  const agent = new Agent({ connections: CONCURRENCY_MAX, maxResponseSize: ANSWER_BYTES_MAX });
  const throttle = createThrottle(clock, name);
  const health = createHealth(clock);
  let lastId = 0;

  /** The JSON that the node answers, or what it says instead when that is a limit. */
  async function post(
    body: string,
    signal: AbortSignal,
    onBytes: OnBytes,
  ): Promise<{ json: unknown } | { refusal: RpcAnswer }> {
    const timeout = startAbort(signal, REQUEST_MS_MAX);
    try {
      const {
        statusCode,
        headers,
        body: answer,
      } = await request(target.url, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...target.headers },
        body,
        dispatcher: agent,
        signal: timeout.signal,
      });
      const text = await readText(answer, onBytes);
      if (statusCode === 200) return { json: parseJson(text, name) };
      const retryAfter = headers['retry-after']?.toString();
      const pause = retryAfter === undefined ? '' : redact(`, retry-after ${retryAfter}`);
      const message = `HTTP ${statusCode}${pause}`.slice(0, MESSAGE_CHARACTERS_MAX);
      const beginning = text.slice(0, MESSAGE_CHARACTERS_MAX);
      const limit = limitOfHttp({ statusCode, retryAfter, text: beginning, now: clock.now() });
      if (limit !== undefined) return { refusal: { ok: false, code: statusCode, message, limit } };
      // Some say by HTTP 400 what belongs into a JSON-RPC error: that they lack a method.
      const refusal = statusCode === 400 ? parseRefusal(text) : undefined;
      if (refusal !== undefined) return { json: refusal };
      throw new Fault('unavailable', `${name} answered ${message}`);
    } catch (error) {
      if (error instanceof Fault) throw error;
      if (error instanceof errors.ResponseExceededMaxSizeError)
        return { refusal: { ok: false, code: 0, message: error.message, limit: { kind: 'too much' } } };
      // Without the cause: its text would join the message as it is.
      throw new Fault('unavailable', `${name}: ${redact(messageOf(error))}`);
    } finally {
      timeout.release();
    }
  }

  /** One HTTP exchange, in a slot that was taken; undefined for a call that the node's limits left open. */
  async function exchange(
    calls: readonly RpcCall[],
    signal: AbortSignal,
    onBytes: OnBytes,
  ): Promise<(RpcAnswer | undefined)[]> {
    const startedAt = clock.now().getTime();
    const method = calls.length > 1 ? 'batch' : calls[0]?.method;
    const stop = metrics.rpcSeconds.startTimer({ node: name, ...(method !== undefined && { method }) });
    const note = (outcomes: readonly CallOutcome[]) => {
      health.note(calls, outcomes, clock.now().getTime() - startedAt);
      for (const [index, call] of calls.entries()) {
        const kind = outcomes[index]?.kind ?? 'failed';
        const outcome = kind === 'lacking' ? 'error' : kind;
        metrics.rpcRequests.inc({ node: name, method: call.method, outcome });
      }
    };
    try {
      const ids = calls.map(() => ++lastId);
      const messages = calls.map((call, index) => ({ jsonrpc: '2.0', id: ids[index], ...call }));
      const text = JSON.stringify(messages.length === 1 ? messages[0] : messages);
      const reply = await post(text, signal, onBytes);
      const answers =
        'json' in reply ? readAnswers(reply.json, ids, { name, redact }) : calls.map(() => reply.refusal);
      const limits = noteLimits(answers);
      // geth refuses a batch in the answer of its first call and leaves the others unanswered.
      const unanswered = calls[answers.indexOf(undefined)];
      if (unanswered !== undefined && !limits.has('too much'))
        throw new Fault('inconsistent', `${name} left ${unanswered.method} unanswered`);
      const outcomes = answers.map((answer) => outcomeOf(answer, calls.length > 1));
      note(outcomes);
      return answers.map((answer, index) => (outcomes[index]?.kind === 'limited' ? undefined : answer));
    } catch (error) {
      const message = messageOf(error);
      // Who is no longer wanted has not failed.
      if (!signal.aborted) note(calls.map(() => ({ kind: 'failed', message })));
      throw error;
    } finally {
      throttle.leave();
      stop();
    }
  }

  /** Tells the throttle what the answers say; which kinds of limits they met. */
  function noteLimits(answers: readonly (RpcAnswer | undefined)[]): Set<Limit['kind']> {
    const met = new Set<Limit['kind']>();
    for (const answer of answers) {
      if (answer === undefined || answer.ok || answer.limit === undefined) continue;
      if (!met.has(answer.limit.kind)) throttle.noteLimit(answer.limit, answers.length, answer.message);
      met.add(answer.limit.kind);
    }
    if (met.size === 0) throttle.noteAnswered(answers.length);
    return met;
  }

  async function batch(
    calls: readonly RpcCall[],
    signal: AbortSignal,
    { patienceMs, onBytes }: Manner,
  ): Promise<RpcAnswer[]> {
    const answers: (RpcAnswer | undefined)[] = calls.map(() => undefined);
    const giveUpAtMs = clock.now().getTime() + patienceMs;
    for (;;) {
      const open = [...calls.entries()].filter(([index]) => answers[index] === undefined);
      if (open.length === 0) return answers.filter((answer) => answer !== undefined);
      const size = Math.min(throttle.batchCallsMax(), open.length);
      const groups = Array.from({ length: Math.ceil(open.length / size) }, (_, index) =>
        open.slice(index * size, (index + 1) * size),
      );
      await Promise.all(
        groups.map(async (group) => {
          if (!throttle.tryEnter()) await throttle.enter(signal, giveUpAtMs);
          const given = await exchange(
            group.map(([, call]) => call),
            signal,
            onBytes,
          );
          for (const [position, [index]] of group.entries()) answers[index] = given[position];
        }),
      );
    }
  }

  const inManner = (manner: Manner): LearningRpc => {
    const rpc = {
      name,
      throttle,
      health,
      batch: (calls: readonly RpcCall[], signal: AbortSignal) => batch(calls, signal, manner),
      async call(method: string, params: readonly unknown[], signal: AbortSignal) {
        const [answer] = await rpc.batch([{ method, params }], signal);
        return resultOf(rpc, method, answer);
      },
      counted: (onBytes: OnBytes) => inManner({ ...manner, onBytes }),
      close: () => agent.destroy(),
    };
    return rpc;
  };
  const onBytes = () => {};
  const hasty = inManner({ patienceMs: 0, onBytes });
  return { ...hasty, patient: inManner({ patienceMs: PATIENCE_MS_MAX, onBytes }) };
}

async function readText(answer: AsyncIterable<Uint8Array>, onBytes: OnBytes): Promise<string> {
  const pieces: Uint8Array[] = [];
  for await (const piece of answer) {
    pieces.push(piece);
    onBytes(piece.length);
  }
  return new TextDecoder().decode(Buffer.concat(pieces));
}

/** The answers by their ids; undefined where the node left one out. @throws Fault when it gave two under one id. */
function readAnswers(
  json: unknown,
  ids: readonly number[],
  { name, redact }: { name: string; redact(text: string): string },
): (RpcAnswer | undefined)[] {
  const byId = new Map<unknown, RpcAnswer>();
  for (const answer of Array.isArray(json) ? json : [json]) {
    if (!isRecord(answer)) continue;
    // Which of them is the call's cannot be told, and not everything that is asked can be proved.
    if (ids.some((id) => id === answer.id) && byId.has(answer.id))
      throw new Fault('inconsistent', `${name} answered one call of a batch twice`);
    byId.set(answer.id, parseAnswer(answer, redact));
  }
  // A node that cannot batch answers a batch with one error object whose id is null; a result is of one call
  // only.
  const nameless = byId.get(null);
  const rest = nameless?.ok === true && ids.length > 1 ? undefined : nameless;
  return ids.map((id) => byId.get(id) ?? rest);
}

/** What became of a call. One that was too much alone cannot be made smaller: that is its answer. */
function outcomeOf(answer: RpcAnswer | undefined, isBatch: boolean): CallOutcome {
  if (answer === undefined) return { kind: 'limited' };
  if (answer.ok) return { kind: 'ok' };
  const isLimited = answer.limit?.kind === 'too often' || (answer.limit !== undefined && isBatch);
  if (isLimited) return { kind: 'limited' };
  return { kind: lacksMethod(answer) ? 'lacking' : 'error', message: answer.message };
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

/** How nodes say it that use another error code. */
const LACKS_METHOD =
  /method.*(not (be )?(found|available|supported|exist|allowed)|unavailable)|(unsupported|unknown|invalid) method/i;

function parseAnswer(answer: Record<string, unknown>, redact: (text: string) => string): RpcAnswer {
  if (!isRecord(answer.error)) return { ok: true, result: answer.result };
  const { code, message, data } = answer.error;
  const text = typeof message === 'string' ? message : 'an error without a message';
  const error = { code: typeof code === 'number' ? code : 0, message: text.slice(0, MESSAGE_CHARACTERS_MAX) };
  const limit = limitOfError({ ...error, data });
  // Nodes repeat paths and keys of their URL here. A key that is cut off would not be found.
  const shown = redact(text).slice(0, MESSAGE_CHARACTERS_MAX);
  return { ok: false, code: error.code, message: shown, ...(limit !== undefined && { limit }) };
}

/** @throws Fault without the parser's words, which quote the page. */
function parseJson(text: string, name: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Fault('unavailable', `${name} answered with text that is not JSON`);
  }
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
