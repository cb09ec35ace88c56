/**
 * Sends JSON-RPC over HTTP to one node: single calls and batches, with a deadline, a size limit and typed errors,
 * within the observed limits of the node.
 */
import { Agent, request } from 'undici';
import { startAbort } from '../../core/abort.ts';
import { splitCredentials } from '../../core/basic-auth.ts';
import { type Clock, systemClock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import { isRecord } from '../../core/json.ts';
import type { Metrics } from '../../core/metrics.ts';
import { redactorOf } from '../../core/redact.ts';
import { createAnswerReader, type OnBytes, TooLarge, TRACE_STRING_BYTES_MAX } from './answer-text.ts';
import { type CallOutcome, createHealth, type Health } from './health.ts';
import { type Limit, limitOfError, limitOfHttp, type OwnLimit } from './node-limits.ts';
import { CONCURRENCY_MAX, createThrottle, type Throttle } from './throttle.ts';

export type RpcCall = { method: string; params: readonly unknown[] };
export type RpcAnswer =
  | { ok: true; result: unknown }
  | { ok: false; code: number; message: string; limit?: Limit | OwnLimit };

export type Rpc = {
  /** scheme://host, for logs, because the path may contain a key. */
  readonly name: string;
  /**
   * The answers in the order of the calls, in one HTTP exchange unless the node accepts only smaller batches.
   * @throws Fault `unavailable`, at once if the node limits requests
   */
  batch(calls: readonly RpcCall[], signal: AbortSignal): Promise<RpcAnswer[]>;
  /** One call's result. @throws Fault `unavailable` for transport errors and for JSON-RPC errors */
  call(method: string, params: readonly unknown[], signal: AbortSignal): Promise<unknown>;
  close(): Promise<void>;
};

/** A connection with the observed limits and health of the node. */
export type ObservedRpc = Rpc & {
  readonly throttle: Throttle;
  readonly health: Health;
  /** The same node, with the bytes of its answers counted. */
  counted(onBytes: OnBytes): ObservedRpc;
};

/** The options of one caller's calls. */
type Manner = { patienceMs: number; onBytes: OnBytes };

export type NodeRpc = ObservedRpc & {
  /**
   * The same connection, but it waits while the node limits requests, and repeats refused calls, for up to
   * `PATIENCE_MS_MAX`.
   */
  readonly patient: ObservedRpc;
};

/** A traced mainnet block can take seconds. A request that takes longer than this fails. */
const REQUEST_MS_MAX = 30_000;
/** As long as for an answer. A caller that waits longer should get the reason. */
const PATIENCE_MS_MAX = REQUEST_MS_MAX;
/** A node's message goes to the log and to the status page, and some send whole stack traces. */
const MESSAGE_CHARACTERS_MAX = 500;
/** JSON-RPC 2.0, section 5.1. */
const METHOD_NOT_FOUND = -32_601;
/** Forbidden, not found, and method not allowed: gateways refuse methods with them. */
const REFUSALS = new Set([403, 404, 405]);

/** The calls were refused with one of these HTTP statuses. */
export class RefusedFault extends Fault {}

export function createRpc(url: string, metrics: Metrics, clock: Clock = systemClock()): NodeRpc {
  const agent = new Agent({ connections: CONCURRENCY_MAX });
  const name = new URL(url).origin;
  const throttle = createThrottle(clock, name);
  const health = createHealth(clock);
  const redact = redactorOf(url);
  const post = createPost({ target: splitCredentials(url), agent, name, redact, clock });
  const exchange = createExchange({ name, redact, throttle, health, post, metrics, clock });

  async function batch(
    calls: readonly RpcCall[],
    signal: AbortSignal,
    { patienceMs, onBytes }: Manner,
  ): Promise<RpcAnswer[]> {
    const answers: (RpcAnswer | undefined)[] = calls.map(() => undefined);
    const giveUpAtMs = clock.now().getTime() + patienceMs;
    let callsMax = Number.POSITIVE_INFINITY;
    for (;;) {
      const open = [...calls.entries()].filter(([index]) => answers[index] === undefined);
      if (open.length === 0) return answers.filter((answer) => answer !== undefined);
      const size = Math.min(throttle.batchCallsMax(), callsMax, open.length);
      const groups = Array.from({ length: Math.ceil(open.length / size) }, (_, index) =>
        open.slice(index * size, (index + 1) * size),
      );
      await Promise.all(
        groups.map(async (group) => {
          if (!throttle.tryEnter()) await throttle.enter(signal, giveUpAtMs);
          const { answers: given, met } = await exchange(
            group.map(([, call]) => call),
            signal,
            onBytes,
          );
          // Alone, because only the one call whose contract returns so much can't be answered.
          if (met.has('too large')) callsMax = 1;
          for (const [position, [index]] of group.entries()) answers[index] = given[position];
        }),
      );
    }
  }

  const inManner = (manner: Manner): ObservedRpc => {
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

type Reply = { json: unknown } | { refusal: RpcAnswer };
type Post = (
  text: string,
  options: { calls: readonly RpcCall[]; signal: AbortSignal; onBytes: OnBytes },
) => Promise<Reply>;

/** Posts the text of some calls. Returns the JSON of the node's answer, or the node's refusal if that is a limit. */
function createPost({
  target,
  agent,
  name,
  redact,
  clock,
}: {
  target: ReturnType<typeof splitCredentials>;
  agent: Agent;
  name: string;
  redact(text: string): string;
  clock: Clock;
}): Post {
  const read = createAnswerReader();
  return async (body, { calls, signal, onBytes }) => {
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
      const text = await read(answer, { calls, onBytes });
      if (statusCode === 200) return { json: parseJson(text, name) };
      const retryAfter = headers['retry-after']?.toString();
      const pause = retryAfter === undefined ? '' : redact(`, retry-after ${retryAfter}`);
      const message = `HTTP ${statusCode}${pause}`.slice(0, MESSAGE_CHARACTERS_MAX);
      const beginning = text.slice(0, MESSAGE_CHARACTERS_MAX);
      const limit = limitOfHttp({ statusCode, retryAfter, text: beginning, now: clock.now() });
      if (limit !== undefined) return { refusal: { ok: false, code: statusCode, message, limit } };
      const refusal = parseRefusal(text, redact);
      // Some nodes send the JSON-RPC error that they lack a method with an HTTP error. HTTP 401 is about the key, whatever its text.
      const isOfMethod = statusCode < 500 && statusCode !== 401 && lacksMethod(refusal?.answer);
      if (refusal !== undefined && (statusCode === 400 || isOfMethod)) return { json: refusal.json };
      const what = `${name} answered ${message}`;
      throw new (REFUSALS.has(statusCode) ? RefusedFault : Fault)('unavailable', what);
    } catch (error) {
      const isLate = error instanceof Fault && error === timeout.signal.reason && !signal.aborted;
      if (isLate) throw new Fault('unavailable', `${name}: ${error.message}`);
      if (error instanceof Fault) throw error;
      if (error instanceof TooLarge) {
        const kind = calls.some(({ method }) => method === 'eth_call') ? 'too large' : 'too much';
        return { refusal: { ok: false, code: 0, message: error.message, limit: { kind } } };
      }
      // Without the cause, because its text would be appended to the message unredacted.
      throw new Fault('unavailable', `${name}: ${redact(messageOf(error))}`);
    } finally {
      timeout.release();
    }
  };
}

/** One HTTP exchange in a slot that was taken. Undefined for a call that the limits which it met left unanswered. */
type Exchange = (
  calls: readonly RpcCall[],
  signal: AbortSignal,
  onBytes: OnBytes,
) => Promise<{ answers: (RpcAnswer | undefined)[]; met: LimitKinds }>;

type LimitKinds = ReadonlySet<(Limit | OwnLimit)['kind']>;

function createExchange({
  name,
  redact,
  throttle,
  health,
  post,
  metrics,
  clock,
}: {
  name: string;
  redact(text: string): string;
  throttle: Throttle;
  health: Health;
  post: Post;
  metrics: Metrics;
  clock: Clock;
}): Exchange {
  let lastId = 0;

  function countOutcomes(
    calls: readonly RpcCall[],
    outcomes: readonly CallOutcome[],
    durationMs: number,
  ): void {
    health.note(calls, outcomes, durationMs);
    for (const [index, call] of calls.entries()) {
      const kind = outcomes[index]?.kind ?? 'failed';
      const outcome = kind === 'lacking' ? 'error' : kind;
      metrics.rpcRequests.inc({ node: name, method: call.method, outcome });
    }
  }

  return async (calls, signal, onBytes) => {
    const startedAt = clock.now().getTime();
    const method = calls.length > 1 ? 'batch' : calls[0]?.method;
    const stop = metrics.rpcSeconds.startTimer({ node: name, ...(method !== undefined && { method }) });
    const note = (outcomes: readonly CallOutcome[]) =>
      countOutcomes(calls, outcomes, clock.now().getTime() - startedAt);
    try {
      const ids = calls.map(() => ++lastId);
      const messages = calls.map((call, index) => ({ jsonrpc: '2.0', id: ids[index], ...call }));
      const text = JSON.stringify(messages.length === 1 ? messages[0] : messages);
      const reply = await post(text, { calls, signal, onBytes });
      const answers =
        'json' in reply ? readAnswers(reply.json, ids, { name, redact }) : calls.map(() => reply.refusal);
      const met = noteLimits(throttle, answers);
      // geth refuses a batch in the answer of its first call and leaves the others unanswered.
      const unanswered = calls[answers.indexOf(undefined)];
      if (unanswered !== undefined && !met.has('too much'))
        throw new Fault('inconsistent', `${name} left ${unanswered.method} unanswered`);
      const outcomes = answers.map((answer) => outcomeOf(answer, calls.length > 1));
      note(outcomes);
      const settled = answers.map((answer, index) =>
        outcomes[index]?.kind === 'limited' ? undefined : answer,
      );
      return { answers: settled, met };
    } catch (error) {
      const message = messageOf(error);
      // An aborted request does not count as a failure.
      if (!signal.aborted) note(calls.map(() => ({ kind: 'failed', message })));
      throw error;
    } finally {
      throttle.leave();
      stop();
    }
  };
}

/** Reports the answers to the throttle. Returns the kinds of limits that they met. */
function noteLimits(throttle: Throttle, answers: readonly (RpcAnswer | undefined)[]): LimitKinds {
  const met = new Set<(Limit | OwnLimit)['kind']>();
  for (const answer of answers) {
    if (answer === undefined || answer.ok || answer.limit === undefined) continue;
    const { limit, message } = answer;
    if (limit.kind !== 'too large' && !met.has(limit.kind))
      throttle.noteLimit(limit, answers.length, message);
    met.add(limit.kind);
  }
  if (met.size === 0) throttle.noteAnswered(answers.length);
  return met;
}

/** The answers by their ids. Undefined if the node omitted one. @throws Fault if two have the same id */
function readAnswers(
  json: unknown,
  ids: readonly number[],
  { name, redact }: { name: string; redact(text: string): string },
): (RpcAnswer | undefined)[] {
  const byId = new Map<unknown, RpcAnswer>();
  for (const answer of Array.isArray(json) ? json : [json]) {
    if (!isRecord(answer)) continue;
    // Refuse both, because it is unknown which one answers the call, and not every answer can be proved.
    if (ids.some((id) => id === answer.id) && byId.has(answer.id))
      throw new Fault('inconsistent', `${name} answered one call of a batch twice`);
    byId.set(answer.id, parseAnswer(answer, redact));
  }
  // A node that doesn't support batches answers with one error whose id is null, and a gateway with one that has none. A result without an
  // id can only belong to a single call.
  const nameless = byId.get(null) ?? byId.get(undefined);
  const rest = nameless?.ok === true && ids.length > 1 ? undefined : nameless;
  return ids.map((id) => byId.get(id) ?? rest);
}

/** The outcome of a call. A single call that is too large can't be split, so its refusal is the answer. */
function outcomeOf(answer: RpcAnswer | undefined, isBatch: boolean): CallOutcome {
  if (answer === undefined) return { kind: 'limited' };
  if (answer.ok) return { kind: 'ok' };
  const isLimited = answer.limit?.kind === 'too often' || (answer.limit !== undefined && isBatch);
  if (isLimited) return { kind: 'limited' };
  return { kind: lacksMethod(answer) ? 'lacking' : 'error', message: answer.message };
}

/** The result of an answer. @throws Fault `unavailable` if the answer is an error or missing */
export function resultOf(rpc: Rpc, method: string, answer: RpcAnswer | undefined): unknown {
  if (answer?.ok === true) return answer.result;
  throw new Fault(
    'unavailable',
    `${rpc.name} ${method}: ${answer?.message ?? 'no answer'} (${answer?.code})`,
  );
}

/** Whether the answer says that the node lacks the method ("header not found" doesn't say so). */
export function lacksMethod(answer: RpcAnswer | undefined): boolean {
  if (answer === undefined || answer.ok) return false;
  return answer.code === METHOD_NOT_FOUND || LACKS_METHOD.test(answer.message);
}

/** Messages of nodes that use another error code. */
const LACKS_METHOD =
  /method.*(not (be )?(found|available|supported|exist|allowed|enabled|permitted|whitelisted)|unavailable|disabled)|(unsupported|unknown|invalid) method/i;

function parseAnswer(answer: Record<string, unknown>, redact: (text: string) => string): RpcAnswer {
  const given = errorIn(answer);
  if (given === undefined) return { ok: true, result: answer.result };
  const { code, message, data } = given;
  const text = typeof message === 'string' ? message : 'an error without a message';
  const error = { code: typeof code === 'number' ? code : 0, message: text.slice(0, MESSAGE_CHARACTERS_MAX) };
  const limit = limitOfError({ ...error, data });
  // Nodes repeat paths and keys of their URL here. Redact before cutting, because a cut key would not be recognized.
  // The same holds for a text that was cut while it was read: its last word goes.
  const shown = redact(withoutCutWord(text)).slice(0, MESSAGE_CHARACTERS_MAX);
  return { ok: false, code: error.code, message: shown, ...(limit !== undefined && { limit }) };
}

/** Drops what is left of the word in which a text was cut (`createStringCutter`). A longer text wasn't. */
const withoutCutWord = (text: string): string =>
  text.length > TRACE_STRING_BYTES_MAX + 1 ? text : text.replace(/[^\s/?&=:@]*…$/, '…');

/** The error of an answer, which some gateways give as a text. */
function errorIn({ error }: Record<string, unknown>): Record<string, unknown> | undefined {
  if (typeof error === 'string' && error !== '') return { message: error };
  return isRecord(error) ? error : undefined;
}

/** @throws Fault without the parser's message, which quotes the page */
function parseJson(text: string, name: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new Fault('unavailable', `${name} answered with text that is not JSON`);
  }
}

/** The JSON-RPC error in the body of an HTTP error. Undefined for any other body. */
function parseRefusal(
  text: string,
  redact: (text: string) => string,
): { json: unknown; answer: RpcAnswer } | undefined {
  try {
    const json: unknown = JSON.parse(text);
    const isError = isRecord(json) && errorIn(json) !== undefined;
    return isError ? { json, answer: parseAnswer(json, redact) } : undefined;
  } catch {
    return undefined;
  }
}
