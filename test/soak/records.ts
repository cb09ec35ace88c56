/**
 * The clients of the soak: they create, change and delete watched addresses through the API, one at a time and in bulk. They repeat
 * a request until it is answered, and note when each change was requested and answered.
 */
import { randomUUID } from 'node:crypto';
import type { Address } from '../../src/core/hex.ts';
import { freshAddress } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';
import type { Change, WatchedRecord } from './oracle.ts';

type SoakRecords = {
  /** All records since the last `forget`. */
  list(): readonly WatchedRecord[];
  /** Live records of fresh addresses, for payments. */
  payable(): Address[];
  /** Watches these addresses with each watcher. Nothing changes these records. */
  watch(addresses: readonly Address[]): Promise<void>;
  /** One random change, or one call with many. */
  change(): Promise<void>;
  /** Drops deleted records, and the history of the others. */
  forget(): void;
  changes(): number;
};

/** Sends a request to the API until it has a final answer. */
export type Ask = (
  key: string,
  request: { method: string; path: string; body?: unknown; idempotencyKey?: string },
) => Promise<{ status: number; data: unknown }>;

type Live = WatchedRecord & { key: string; changes: Change[]; isFixed: boolean };

/** Creations and deletions hold the number of records between these. */
const RECORDS_MIN = 60;
const RECORDS_MAX = 240;
const BULK = 40;

export function createRecords(options: {
  ask: Ask;
  keys: readonly string[];
  urls: readonly string[];
  random: () => number;
}): SoakRecords {
  const { ask, keys, urls, random } = options;
  const records = new Map<string, Live>();
  let changes = 0;
  const pick = <T>(list: readonly T[]): T => {
    const one = list[Math.floor(random() * list.length)];
    if (one === undefined) throw new Error('a choice from nothing');
    return one;
  };
  const isLive = ({ changes: all }: Live) => all.at(-1)?.wish !== undefined;
  const changeable = () => [...records.values()].filter((record) => isLive(record) && !record.isFixed);

  async function call(key: string, request: Parameters<Ask>[1], isAccepted = [200]): Promise<unknown> {
    const { status, data } = await ask(key, request);
    if (!isAccepted.includes(status))
      throw new Error(`${request.method} ${request.path} answered ${status}: ${JSON.stringify(data)}`);
    changes += 1;
    return data;
  }

  function keep(key: string, data: unknown, change: Change, isFixed = false): void {
    const { id, address }: Record<string, unknown> = Object(data);
    if (typeof id !== 'string' || typeof address !== 'string') throw new Error('not a watched address');
    records.set(id, { id, address, key, isFixed, changes: [change] });
  }

  const fieldsOf = (address: Address) => {
    const wish = { watchCoin: random() < 0.9, watchToken: random() < 0.8 };
    return {
      wish,
      fields: {
        ...{ address, webhook_url: pick(urls) },
        ...{ watch_coin: wish.watchCoin, watch_token: wish.watchToken },
      },
    };
  };

  async function create(key: string): Promise<void> {
    const { wish, fields } = fieldsOf(freshAddress());
    const startedAt = performance.now();
    const idempotencyKey = randomUUID();
    const data = await call(key, { method: 'POST', path: '', body: fields, idempotencyKey });
    keep(key, data, { wish, startedAt, endedAt: performance.now() });
  }

  async function createMany(key: string): Promise<void> {
    const many = Array.from({ length: BULK }, () => fieldsOf(freshAddress()));
    const startedAt = performance.now();
    const body = { records: many.map(({ fields }) => fields) };
    const data = await call(key, { method: 'POST', path: '/bulk', body, idempotencyKey: randomUUID() });
    const endedAt = performance.now();
    if (!Array.isArray(data) || data.length !== BULK) throw new Error('a bulk answer of another length');
    for (const [index, { wish }] of many.entries()) keep(key, data[index], { wish, startedAt, endedAt });
  }

  /** Notes the change before its request, because it may take effect without an answer. */
  async function note(
    changed: readonly Live[],
    change: Omit<Change, 'startedAt' | 'endedAt'>,
    work: () => Promise<unknown>,
  ) {
    const noted = { ...change, startedAt: performance.now(), endedAt: Number.POSITIVE_INFINITY };
    for (const record of changed) record.changes.push(noted);
    await work();
    noted.endedAt = performance.now();
  }

  async function patch(record: Live): Promise<void> {
    const now = record.changes.at(-1)?.wish;
    const { wish, fields } = fieldsOf(freshAddress());
    if (random() < 0.5)
      return note([record], { wish: now, movesUrl: true }, () =>
        call(record.key, {
          method: 'PATCH',
          path: `/${record.id}`,
          body: { webhook_url: fields.webhook_url },
        }),
      );
    const body = { watch_coin: wish.watchCoin, watch_token: wish.watchToken };
    await note([record], { wish }, () => call(record.key, { method: 'PATCH', path: `/${record.id}`, body }));
  }

  async function configure(record: Live): Promise<void> {
    const body = { confirmations: Math.floor(random() * 3), strict_order: random() < 0.3 };
    await call(record.key, { method: 'PUT', path: `/${record.id}/settings`, body });
  }

  const remove = (record: Live) =>
    note([record], { wish: undefined }, () =>
      // 404: an earlier request deleted it, but its answer was lost.
      call(record.key, { method: 'DELETE', path: `/${record.id}` }, [200, 404]),
    );

  async function removeMany(key: string): Promise<void> {
    const many = changeable()
      .filter((record) => record.key === key)
      .slice(0, BULK);
    if (many.length === 0) return;
    const body = { records: many.map(({ id }) => ({ operation: 'delete', id })) };
    await note(many, { wish: undefined }, () =>
      call(key, { method: 'POST', path: '/bulk', body, idempotencyKey: randomUUID() }),
    );
  }

  return {
    list: () => [...records.values()],
    payable: () => changeable().map(({ address }) => address as Address),
    changes: () => changes,
    async watch(addresses) {
      for (const key of keys)
        for (const address of addresses) {
          const startedAt = performance.now();
          const body = { address, webhook_url: pick(urls) };
          const data = await call(key, { method: 'POST', path: '', body });
          const wish = { watchCoin: true, watchToken: true };
          keep(key, data, { wish, startedAt, endedAt: performance.now() }, true);
        }
    },
    async change() {
      const live = changeable();
      const key = pick(keys);
      const dice = random();
      if (live.length < RECORDS_MIN) return createMany(key);
      if (live.length > RECORDS_MAX) return removeMany(pick(live).key);
      if (dice < 0.3) return create(key);
      if (dice < 0.45) return remove(pick(live));
      if (dice < 0.75) return patch(pick(live));
      if (dice < 0.9) return configure(pick(live));
      return dice < 0.95 ? createMany(key) : removeMany(key);
    },
    forget() {
      for (const [id, record] of records) {
        if (isLive(record)) record.changes.splice(0, record.changes.length - 1);
        else records.delete(id);
      }
    },
  };
}

const REQUEST_MS_MAX = 10_000;
const ANSWER_MS_MAX = 600_000;

/**
 * Asks one of the API processes at a time. `onFailure` hears of each request that had no answer, or one of a server in trouble.
 */
export function createAsk(
  apiUrls: readonly string[],
  { random, onFailure }: { random: () => number; onFailure(what: string): void },
): Ask {
  return async (key, { method, path, body, idempotencyKey }) =>
    waitUntil(
      async () => {
        const apiUrl = apiUrls[Math.floor(random() * apiUrls.length)];
        try {
          const response = await fetch(`${apiUrl}/api/notifications/watched-addresses${path}`, {
            method,
            headers: {
              authorization: `Bearer ${key}`,
              ...(body !== undefined && { 'content-type': 'application/json' }),
              ...(idempotencyKey !== undefined && { 'idempotency-key': idempotencyKey }),
            },
            ...(body !== undefined && { body: JSON.stringify(body) }),
            signal: AbortSignal.timeout(REQUEST_MS_MAX),
          });
          const answer: { data?: unknown } = JSON.parse(await response.text());
          if (response.status < 500) return { status: response.status, data: answer.data ?? answer };
          onFailure(`${method} ${path} answered ${response.status}: ${JSON.stringify(answer)}`);
        } catch (error) {
          onFailure(`${method} ${path}: ${error instanceof Error ? error.message : String(error)}`);
        }
        return undefined;
      },
      { describe: `an answer to ${method} ${path}`, timeoutMs: ANSWER_MS_MAX, pollMs: 250 },
    );
}
