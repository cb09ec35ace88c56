/**
 * A client of the service's HTTP API for the fairness scenarios, with probes of its response times.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { Agent, request } from 'undici';
import type { Address } from '../../../src/core/hex.ts';
import { freshAddress } from '../../../test/kit/service.ts';

type NewRecord = { address: Address; webhook_url: string };

export type Api = {
  /** Registers watched addresses with their watcher's key. */
  register(key: string, records: readonly NewRecord[]): Promise<void>;
  /** Registers a watched address with strict order. */
  registerOrdered(key: string, record: NewRecord): Promise<void>;
  /** The number of the newest stored block. Undefined before the first block and while the service is not ready. */
  tip(): Promise<number | undefined>;
  /** Sends a GET and a small POST at fixed times until the signal aborts, without waiting for earlier responses. */
  probe(probing: Probing, signal: AbortSignal): Promise<ProbeTimes>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** The webhook URL, the key of a watcher whose few records are read, and the key of a watcher that creates records. */
export type Probing = { reader: string; writer: string; webhookUrl: string };

/** Response times in milliseconds. A failed request counts as long as the limit. */
export type ProbeTimes = { getMs: number[]; postMs: number[]; failures: number };

const RECORDS = '/api/notifications/watched-addresses';
const CHUNK = 1_000;
const SINGLE_CALLS = 16;
const CALL_MS_MAX = 60_000;
const PROBE_MS_MAX = 10_000;
const GET_EVERY_MS = 100;
const POST_EVERY_MS = 250;

export function createApi(url: string): Api {
  // Separate connections, so that registrations don't queue in front of probes.
  const dispatcher = new Agent({ connections: 256 });
  const call = createCall(url, dispatcher);
  const change = async (
    method: 'POST' | 'PUT',
    key: string,
    path: string,
    body: unknown,
  ): Promise<string> => {
    const { status, text } = await call({ method, path, key, body });
    if (status !== 200) throw new Error(`the API answered ${status}: ${text}`);
    return text;
  };
  const registerOne = async (key: string, record: NewRecord): Promise<void> => {
    await change('POST', key, RECORDS, record);
  };
  const registerOneByOne = async (key: string, records: readonly NewRecord[]): Promise<void> => {
    const waiting = [...records];
    const work = async () => {
      for (let record = waiting.pop(); record !== undefined; record = waiting.pop())
        await registerOne(key, record);
    };
    await Promise.all(Array.from({ length: SINGLE_CALLS }, work));
  };
  return {
    async register(key, records) {
      const [first] = records;
      if (records.length === 1 && first !== undefined) return registerOne(key, first);
      for (let start = 0; start < records.length; start += CHUNK) {
        const chunk = records.slice(start, start + CHUNK);
        const body = { records: chunk };
        const { status, text } = await call({ method: 'POST', path: `${RECORDS}/bulk`, key, body });
        // Older services have no bulk calls.
        if (status === 404 || status === 405) await registerOneByOne(key, chunk);
        else if (status !== 200) throw new Error(`the API answered ${status}: ${text}`);
      }
    },
    async registerOrdered(key, record) {
      const { data }: { data: { id: string } } = JSON.parse(await change('POST', key, RECORDS, record));
      await change('PUT', key, `${RECORDS}/${data.id}/settings`, { strict_order: true });
    },
    async tip() {
      const answer = await call({ method: 'GET', path: '/readyz' }).catch(() => undefined);
      const block = /"block (\d+)"/.exec(answer?.text ?? '')?.[1];
      return block === undefined ? undefined : Number(block);
    },
    probe: (probing, signal) => probe(call, probing, signal),
    [Symbol.asyncDispose]: () => dispatcher.destroy(),
  };
}

type CallOptions = {
  method: 'GET' | 'POST' | 'PUT';
  path: string;
  key?: string;
  body?: unknown;
  timeoutMs?: number;
};
type Call = (options: CallOptions) => Promise<{ status: number; text: string }>;

const createCall =
  (url: string, dispatcher: Agent): Call =>
  async ({ method, path, key, body, timeoutMs = CALL_MS_MAX }) => {
    const answer = await request(`${url}${path}`, {
      method,
      dispatcher,
      headers: {
        ...(key !== undefined && { authorization: `Bearer ${key}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
      signal: AbortSignal.timeout(timeoutMs),
    });
    return { status: answer.statusCode, text: await answer.body.text() };
  };

async function probe(
  call: Call,
  { reader, writer, webhookUrl }: Probing,
  signal: AbortSignal,
): Promise<ProbeTimes> {
  const times: ProbeTimes = { getMs: [], postMs: [], failures: 0 };
  const time = async (into: number[], probing: () => Promise<{ status: number }>) => {
    const startedAt = performance.now();
    const isGood = await probing().then(
      ({ status }) => status === 200,
      () => false,
    );
    if (!isGood) times.failures += 1;
    into.push(isGood ? performance.now() - startedAt : PROBE_MS_MAX);
  };
  const options = { path: RECORDS, timeoutMs: PROBE_MS_MAX };
  await Promise.all([
    every(GET_EVERY_MS, signal, () =>
      time(times.getMs, () => call({ ...options, method: 'GET', key: reader })),
    ),
    every(POST_EVERY_MS, signal, () => {
      const body = { address: freshAddress(), webhook_url: webhookUrl };
      return time(times.postMs, () => call({ ...options, method: 'POST', key: writer, body }));
    }),
  ]);
  return times;
}

/** Starts `work` at fixed times until the signal aborts, then waits for all started work. */
async function every(ms: number, signal: AbortSignal, work: () => Promise<void>): Promise<void> {
  const started: Promise<void>[] = [];
  const startedAt = performance.now();
  for (let index = 0; !signal.aborted; index += 1) {
    await delay(Math.max(0, startedAt + index * ms - performance.now()));
    started.push(work());
  }
  await Promise.all(started);
}
