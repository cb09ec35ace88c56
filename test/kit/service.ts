/**
 * Runs the whole program in this process, as its users know it: a loaded configuration, free ports and the real HTTP API.
 */
import { randomBytes } from 'node:crypto';
import { type Service, type ServiceOptions, startService } from '../../src/app/service.ts';
import { type ConfigOverrides, loadConfig } from '../../src/config/load.ts';
import type { Config } from '../../src/config/schema.ts';
import type { Address, Hash } from '../../src/core/hex.ts';
import { createLog, type Log } from '../../src/core/log.ts';
import { findTip } from '../../src/store/blocks/blocks.ts';
import { sql } from '../../src/store/db/sql.ts';
import type { Chain } from './anvil.ts';
import type { TestDatabase } from './database.ts';
import './shared-serializers.ts';
import { waitUntil } from './wait.ts';
import { watchAnswers } from './watched-fetch.ts';

export type TestServiceOptions = Pick<ServiceOptions, 'roles' | 'migrations'> & {
  database: Pick<TestDatabase, 'url' | 'dataDir'> & { sessionUrl?: string; replicaUrl?: string };
  /** The node's URLs. */
  rpc: readonly string[];
  /** Receivers whose ports webhook URLs may use. */
  receivers?: readonly { port: number }[];
  chain?: Omit<NonNullable<ConfigOverrides['chain']>, 'id' | 'rpc'>;
  retryMinutes?: readonly number[];
  /** Replaces the secret that all services share. */
  secret?: string;
  formerSecrets?: readonly string[];
  /** Turns the operator API on. */
  adminToken?: string;
  /** The console is on by default. */
  console?: boolean;
  /** The port of the API; a free one by default. */
  port?: number;
  /** 5 by default. */
  stopSeconds?: number;
  /** No output by default. */
  log?: Log;
  /** Further sections of the configuration. */
  sections?: Pick<ConfigOverrides, 'tokens' | 'pairs' | 'prices' | 'supply' | 'points'>;
};

/** A watched address as the API returns it (spec 2.6). */
export type WatchedAddressJson = {
  id: string;
  watcher_id: number;
  address: string;
  watch_coin: boolean;
  watch_token: boolean;
  webhook_url: string;
};

/** A stored notification, with the fields that tests check. */
export type NotificationRow = {
  id: number;
  watched_address_id: string;
  tx_hash: string;
  kind: string;
  block_number: number;
  state: string;
  retry_count: number;
  created_text: string;
  next_retry_text: string | null;
  is_processed: boolean;
};

export type TestService = Service & {
  /** Resolves when the newest stored block is the node's head. */
  inSync(chain: Pick<Chain, 'head'>): Promise<void>;
  /** Resolves when every notification that waits for an attempt has been processed. */
  drained(): Promise<void>;
  /** All notifications of a transaction, or of a watched address; oldest first. */
  notifications(of: { hash?: Hash; record?: { id: string } }): Promise<NotificationRow[]>;
  /** The value of a metric that has no labels. */
  metric(name: string): Promise<number>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** Anvil's default chain id. */
export const CHAIN_ID = 31_337;
/** All services of this process share one secret, so that a second one on the same database can read its keys. */
export const SECRET = randomBytes(32).toString('base64');

/** The configuration that `startTestService` uses, for a service on loopback. */
export function testConfig(options: TestServiceOptions): Config {
  const { database, rpc, receivers = [], retryMinutes, secret = SECRET, formerSecrets = [] } = options;
  const { adminToken = null } = options;
  return loadConfig({
    env: {},
    overrides: {
      ...options.sections,
      chain: { id: CHAIN_ID, rpc: [...rpc], ...options.chain },
      database: {
        ...{ url: database.url, sessionUrl: database.sessionUrl ?? '' },
        ...(database.replicaUrl !== undefined && {
          replicaUrl: database.replicaUrl,
          replicaLagMaxSeconds: 1,
        }),
      },
      dataDir: database.dataDir,
      secret,
      formerSecrets: [...formerSecrets],
      http: {
        port: options.port ?? 0,
        adminToken,
        ...(options.console !== undefined && { console: options.console }),
      },
      metrics: { port: 0 },
      // Many receivers of tests hang on purpose.
      stopSeconds: options.stopSeconds ?? 5,
      webhooks: {
        allowHttp: true,
        allowCidrs: ['127.0.0.0/8'],
        ports: [443, ...receivers.map(({ port }) => port)],
        ...(retryMinutes !== undefined && { retryMinutes: [...retryMinutes] }),
      },
    },
  });
}

/**
 * The head of a node that responds at once. With "latest", a service starts at the first head that it sees, so it might miss a
 * payment that a test makes right after the start.
 */
async function findHead(url: string | undefined): Promise<number | 'latest'> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'eth_blockNumber', params: [] });
  const headers = { 'content-type': 'application/json' };
  try {
    const signal = AbortSignal.timeout(1_000);
    const { result } = Object(
      await (await fetch(url ?? '', { method: 'POST', headers, body, signal })).json(),
    );
    return typeof result === 'string' ? Number(result) : 'latest';
  } catch {
    return 'latest';
  }
}

/**
 * Starts a service. If a part of it dies of a bug, the test run ends with that bug. A response to `fetch` that does not match
 * the OpenAPI document fails the test.
 */
export async function startTestService(options: TestServiceOptions): Promise<TestService> {
  const { roles, migrations, log = createLog({ level: 'error', format: 'json' }) } = options;
  const chain = { startBlock: await findHead(options.rpc[0]), ...options.chain };
  const service = await startService(testConfig({ ...options, chain }), {
    log,
    ...(roles !== undefined && { roles }),
    ...(migrations !== undefined && { migrations }),
  });
  const { database } = service;
  const unwatch = await watchAnswers(service.apiUrl);
  const stop = async () => {
    await service.stop();
    unwatch();
  };
  void service.failed.then((bug) => {
    throw bug;
  });
  return {
    ...service,
    stop,
    async inSync(chain) {
      const isInSync = async () => (await findTip(database))?.hash === (await chain.head()).hash;
      await waitUntil(isInSync, { describe: 'the stored tip to be the head of the chain' });
    },
    async drained() {
      const isDrained = async () => {
        const waiting = await database.query(
          sql`select 1 from notification_status where state = 'waiting' limit 1`,
        );
        return waiting.length === 0;
      };
      await waitUntil(isDrained, { describe: 'no notification waiting' });
    },
    notifications: ({ hash, record }) =>
      database.query<NotificationRow>(sql`
        select id, watched_address_id, '0x' || encode(tx_hash, 'hex') as tx_hash, kind, block_number, state, retry_count,
          to_char(created_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') as created_text,
          to_char(next_retry_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US') as next_retry_text,
          processed_at is not null as is_processed
        from notification_status
        where (${hash?.slice(2) ?? null}::text is null or encode(tx_hash, 'hex') = ${hash?.slice(2) ?? null}::text)
          and (${record?.id ?? null}::uuid is null or watched_address_id = ${record?.id ?? null}::uuid)
        order by id limit 10000`),
    async metric(name) {
      const text = await (await fetch(service.metricsUrl)).text();
      const value = text.match(new RegExp(`^${name} (\\S+)$`, 'm'))?.[1];
      if (value === undefined) throw new Error(`there is no metric ${name}`);
      return Number(value);
    },
    [Symbol.asyncDispose]: stop,
  };
}

export type Watcher = {
  id: number;
  keyId: string;
  key: string;
  /** Registers an address through the API. */
  watch(fields: {
    address: Address;
    webhookUrl: string;
    watchCoin?: boolean;
    watchToken?: boolean;
  }): Promise<WatchedAddressJson>;
  patch(record: { id: string }, fields: Record<string, unknown>): Promise<WatchedAddressJson>;
  remove(record: { id: string }): Promise<void>;
  /** Replaces the settings of a watched address through the API. */
  configure(record: { id: string }, settings: Record<string, unknown>): Promise<void>;
  /** Sends one request with the watcher's key. The path continues that of the collection. */
  request(method: string, path?: string, body?: unknown): Promise<Response>;
};

/** Creates a watcher with a key and a client for the HTTP API. */
export async function createWatcher(
  service: Pick<Service, 'apiUrl' | 'issueKey'>,
  name: string,
): Promise<Watcher> {
  const { watcherId, keyId, key } = await service.issueKey(name);
  const request = (method: string, path = '', body?: unknown) =>
    fetch(`${service.apiUrl}/api/notifications/watched-addresses${path}`, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
  const succeed = async (response: Response) => {
    const text = await response.text();
    if (response.status !== 200) throw new Error(`${response.url} answered ${response.status}: ${text}`);
    const { data }: { data: WatchedAddressJson } = JSON.parse(text);
    return data;
  };
  return {
    id: watcherId,
    keyId,
    key,
    request,
    watch: async ({ address, webhookUrl, watchCoin, watchToken }) =>
      succeed(
        await request('POST', '', {
          address,
          webhook_url: webhookUrl,
          watch_coin: watchCoin,
          watch_token: watchToken,
        }),
      ),
    patch: async (record, fields) => succeed(await request('PATCH', `/${record.id}`, fields)),
    remove: async (record) => {
      await succeed(await request('DELETE', `/${record.id}`));
    },
    configure: async (record, settings) => {
      await succeed(await request('PUT', `/${record.id}/settings`, settings));
    },
  };
}

/** An unused address. */
export function freshAddress(): Address {
  return `0x${randomBytes(20).toString('hex')}`;
}
