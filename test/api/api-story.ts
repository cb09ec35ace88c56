/**
 * The API on a database, with requests as a client sends them.
 */
import type {
  Api,
  AttemptBell,
  InFlight,
  OperatorSources,
  OpsSources,
  SendTest,
  WatcherLimits,
} from '../../src/api/context.ts';
import { STATUS_EXAMPLE } from '../../src/api/ops/status-body.ts';
import type { SupplyReader } from '../../src/api/public/supply-reader.ts';
import { createApi } from '../../src/api/server.ts';
import { issueKey } from '../../src/app/issue-keys.ts';
import { createOperatorSources } from '../../src/app/operator.ts';
import { renderOpenApi } from '../../src/app/render-openapi.ts';
import { loadConfig } from '../../src/config/load.ts';
import { type Log, silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createMessageView } from '../../src/delivery/shown-message.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import type { ValuedPair } from '../../src/domain/pair.ts';
import type { PriceBook } from '../../src/domain/price-book.ts';
import type { WebhookPolicy } from '../../src/domain/webhook-url.ts';
import type { Database } from '../../src/store/db/db.ts';
import { createTestClock, type TestClock } from '../kit/clock.ts';
import { createDescription, type Describes } from '../kit/described.ts';
import '../kit/shared-serializers.ts';

export const PATH = '/api/notifications/watched-addresses';
export const keyRing = deriveKeyRing(Buffer.alloc(32, 7));

/** Sends a request. `body` is sent as JSON; a text or bytes are sent as they are. */
export type Ask = { key?: string; body?: unknown; headers?: Record<string, string> };
export type Answer = {
  status: number;
  headers: Record<string, string | undefined>;
  text: string;
  json: unknown;
};

type Method = 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'OPTIONS';
type AskApi = (method: Method, url: string, ask?: Ask) => Promise<Answer>;

export type ApiStory = {
  api: Api;
  clock: TestClock;
  metrics: ReturnType<typeof createMetrics>;
  /** Fails if the response doesn't match the OpenAPI document. */
  ask: AskApi;
  /** The same for routes that the test added. */
  askUndescribed: AskApi;
  /** Issues a key for the watcher of this name. */
  issue(watcherName: string): Promise<{ watcherId: number; keyId: string; key: string }>;
};

/** The confirmations that every notification needs. */
const CONFIRMATIONS = 3;
const config = loadConfig({
  env: {},
  overrides: { chain: { id: 1, rpc: ['https://node.example/v2/f00dfeed'] } },
});
/** The policy of production. */
export const strict: WebhookPolicy = { allowHttp: false, allowCidrs: [], ports: [443] };
/** Shared by all stories, because the document is the same for every API. */
let describes: Describes | undefined;
const unknown = { asset: 'BELL', origin: { kind: 'none' } } as const;
const noPrices: PriceBook = { native: unknown, reward: unknown, tokens: new Map() };
const CHAIN = {
  ...{ id: 1, name: 'Ethereum' },
  has: { points: true, prices: true, pairs: false, supply: false, admin: false },
  tokens: [{ address: `0x${'33'.repeat(20)}`, symbol: 'USDT', decimals: 6 }],
} as const;
const allIsWell: OpsSources = {
  checks: async () => ({}),
  status: async () => STATUS_EXAMPLE,
  fullStatus: async () => STATUS_EXAMPLE,
  details: async () => ({ processes: [], late_watchers: [] }),
};

export function createApiStory(
  database: Database,
  ops: Partial<OpsSources> = {},
  sendTest: SendTest = async () => ({
    outcome: 'connect',
    status: undefined,
    durationMs: 0,
    responseText: undefined,
    request: { url: 'https://hooks.example.com/a', headers: {}, body: '{}' },
  }),
  {
    prices = noPrices,
    supply,
    pairs = [],
    adminToken,
    log = silentLog(),
    limits = {},
    inFlight,
    attemptBell = { listen: () => () => {} },
    operator = {},
  }: {
    prices?: PriceBook;
    supply?: SupplyReader;
    pairs?: readonly ValuedPair[];
    adminToken?: string;
    log?: Log;
    limits?: WatcherLimits;
    inFlight?: InFlight;
    attemptBell?: AttemptBell;
    operator?: Partial<OperatorSources>;
  } = {},
): ApiStory {
  const clock = createTestClock();
  const metrics = createMetrics('1.2.3');
  const options = { database, clock, log, metrics, keyRing, webhookPolicy: strict, nativeSymbol: 'BELL' };
  const api = createApi({
    ...options,
    chain: CHAIN,
    confirmations: CONFIRMATIONS,
    limits,
    sendTest,
    showMessage: createMessageView(options),
    inFlight,
    attemptBell,
    ops: { ...allIsWell, ...ops },
    prices,
    supply,
    pairs,
    operator: { ...createOperatorSources(config, { database, clock, keyRing }), ...operator },
    adminToken,
  });
  const askUndescribed: AskApi = async (method, url, { key, body, headers } = {}) => {
    const response = await api.inject({
      method,
      url,
      headers: {
        ...(key !== undefined && { authorization: `Bearer ${key}` }),
        ...(body !== undefined && { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body !== undefined && {
        payload: typeof body === 'string' || Buffer.isBuffer(body) ? body : JSON.stringify(body),
      }),
    });
    const { statusCode: status, body: text } = response;
    const { 'content-type': type, 'content-encoding': coding } = response.headers;
    const isJson = coding === undefined && String(type).startsWith('application/json') && text !== '';
    const flat = Object.fromEntries(
      Object.entries(response.headers).map(([name, value]) => [name, value?.toString()]),
    );
    return { status, headers: flat, text, json: isJson ? JSON.parse(text) : undefined };
  };
  return {
    api,
    clock,
    metrics,
    async ask(method, url, ask) {
      const answer = await askUndescribed(method, url, ask);
      describes ??= createDescription(await renderOpenApi());
      describes({
        method,
        url,
        ...answer,
        contentType: answer.headers['content-type'],
        link: answer.headers.link,
      });
      return answer;
    },
    askUndescribed,
    issue: (watcherName) => issueKey({ database, keyRing }, watcherName, clock.now()),
  };
}
