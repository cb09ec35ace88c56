/**
 * `Authorization: Bearer <API_KEY>` names the watcher (spec 5). The operator's token acts for the watcher that the header
 * `Chainbell-Watcher` names.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { LRUCache } from 'lru-cache';
import { actFor } from '../../core/account.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import { shareNextReading } from '../../core/shared-reading.ts';
import { isWellFormedKey, lookupsOf } from '../../domain/api-key.ts';
import { type KeyRing, kekIdsOf, lacksKek } from '../../domain/key-ring.ts';
import type { Database } from '../../store/db/db.ts';
import { requireSomeShard } from '../../store/delivery/shards.ts';
import { findKeyByLookup, listKekIds, type PresentedKey } from '../../store/watchers/api-keys.ts';
import { findWatcher } from '../../store/watchers/watchers.ts';
import { invalid } from './errors.ts';
import { bearerOf, createTokenCheck } from './operator-token.ts';
import { parseWhole } from './parameters.ts';

export const SUSPENDED =
  'This watcher is suspended: its keys are refused, and its webhooks wait until the operator resumes it';

/** The header by which the operator names the watcher of a request. */
export const WATCHER_HEADER = 'chainbell-watcher';
/**
 * Whose part of shared limits the operator's requests use. No watcher has this id, so that the operator and a watcher never
 * take the other's part.
 */
export const OPERATOR = 0;

/** Authentication of a route's requests: the hook that checks the key, and the watcher it found. */
export type WatcherGate = {
  /** The route's `onRequest` hook. It runs before the body is read, so a request without a valid key costs little. */
  onRequest: (request: FastifyRequest) => Promise<void>;
  /** The watcher of a request that passed `onRequest`. */
  watcherOf: (request: FastifyRequest) => number;
};

type Dependencies = {
  database: Database;
  clock: Clock;
  keyRing: KeyRing;
  /** Without it, only API keys are accepted. */
  adminToken: string | undefined;
};

/** After a body or a wait that took longer, the key is checked again because it may have been revoked meanwhile. */
const UNCHECKED_MS_MAX = 1_000;
const rechecks = new WeakMap<FastifyRequest, () => Promise<void>>();
const watchers = new WeakMap<FastifyRequest, number>();
const keys = new WeakMap<FastifyRequest, PresentedKey>();
const operatorRequests = new WeakSet<FastifyRequest>();

/** For the check of keys that have not been accepted lately. No watcher has this id. */
const UNKNOWN = -1;
const KNOWN_KEYS_MAX = 10_000;
/**
 * The watchers that keys have named, by lookup. It only decides in whose turn a key is checked, so that many requests with one key
 * delay the checks of no other one.
 */
const knownKeys = new LRUCache<string, number>({ max: KNOWN_KEYS_MAX });

type KekIdsReader = () => Promise<readonly string[]>;
/** One for all routes, so that requests with unknown keys make a process read one at a time. */
const kekIdsReaders = new WeakMap<Database, KekIdsReader>();

function kekIdsReaderOf(database: Database): KekIdsReader {
  const known = kekIdsReaders.get(database);
  if (known !== undefined) return known;
  const reader = shareNextReading(() => actFor(UNKNOWN, () => listKekIds(database)));
  kekIdsReaders.set(database, reader);
  return reader;
}

/** The watcher of an authenticated request. */
export function watcherOf(request: FastifyRequest): number {
  const watcherId = watchers.get(request);
  if (watcherId === undefined) throw new Error('the request was not authenticated');
  return watcherId;
}

/** The API key of an authenticated request; undefined for the operator. */
export const keyOf = (request: FastifyRequest): PresentedKey | undefined => keys.get(request);

/** Notes that the request has the operator's token. */
export const noteOperator = (request: FastifyRequest): void => void operatorRequests.add(request);
/** Whether the request has the operator's token. */
export const isOperator = (request: FastifyRequest): boolean => operatorRequests.has(request);

/** Whose part of limits on memory, streams and rates the request uses: its watcher's, or the operator's. */
export const accountOf = (request: FastifyRequest): number =>
  isOperator(request) ? OPERATOR : watcherOf(request);

/** A `preHandler` of all routes: the request's work is done for its account, if it has one (core/account.ts). */
export function takeAccount(request: FastifyRequest, _reply: FastifyReply, done: () => void): void {
  const account = isOperator(request) ? OPERATOR : watchers.get(request);
  if (account === undefined) done();
  else actFor(account, done);
}

/** The `preHandler` of all routes: checks the key again after a slow body. Call it after other waits too. Rejects like `onRequest`. */
export async function passAgain(request: FastifyRequest): Promise<void> {
  await rechecks.get(request)?.();
}

/** For routes that read or change what is in the watcher's shards: on Citus, its hook also rejects while all of these are lost. */
export function createShardGate(dependencies: Dependencies): WatcherGate {
  const gate = createWatcherGate(dependencies);
  return {
    ...gate,
    async onRequest(request) {
      await gate.onRequest(request);
      await actFor(accountOf(request), () => requireSomeShard(dependencies.database, watcherOf(request)));
    },
  };
}

/** Its hook rejects with the Faults of `createAuthenticator`. */
export function createWatcherGate(dependencies: Dependencies): WatcherGate {
  const { clock } = dependencies;
  const authenticate = createAuthenticator(dependencies);
  return {
    async onRequest(request) {
      const sinceMs = clock.steadyMs();
      rechecks.set(request, async () => {
        if (clock.steadyMs() - sinceMs >= UNCHECKED_MS_MAX) await authenticate(request);
      });
      const { watcherId, key } = await authenticate(request);
      watchers.set(request, watcherId);
      if (key !== undefined) keys.set(request, key);
    },
    watcherOf,
  };
}

/** Whether the error says that the key was refused, or that the operator's request names a watcher that is gone. */
export const isRefusal = (error: unknown): boolean =>
  error instanceof Fault && ['unauthorized', 'forbidden', 'not_found'].includes(error.code);

export const unauthorized = (): Fault => new Fault('unauthorized', 'Unauthorized');

/** What a client with a refused key learns. It names no watcher, and only the key's owner can ask. */
const refusals = {
  unknown: 'is no API key of this service',
  revoked: 'was revoked. Ask the operator for a new API key',
  expired: 'has expired, because it was replaced by a newer API key',
};

/** Spec 7 has the status and its message. */
const refusalOf = (state: keyof typeof refusals): Fault =>
  new Fault('unauthorized', 'Unauthorized', {
    reason: `${state}_key`,
    problems: [{ path: '/authorization', message: refusals[state] }],
  });

/**
 * The watcher of a request, and the key that named it. It queries the database every time, so a revoked key stops working at once.
 * @throws Fault `unauthorized` for a missing key, and with a reason for an unknown, revoked or expired one; `unavailable` for an unknown
 * one while this process lacks the secret of a stored one; `forbidden` while the
 * watcher of a key is suspended; `invalid` for the operator's token without the header, and for a key with it; `not_found` when the
 * header names no watcher, or one that is being deleted.
 */
function createAuthenticator({ database, clock, keyRing, adminToken }: Dependencies) {
  const hasToken = createTokenCheck(adminToken);
  const readKekIds = kekIdsReaderOf(database);

  async function findKey(authorization: string | undefined): Promise<PresentedKey> {
    const text = bearerOf(authorization);
    if (text === undefined) throw unauthorized();
    if (!isWellFormedKey(text)) throw refusalOf('unknown');
    const lookups = lookupsOf(text, keyRing);
    const name = lookups[0]?.toString('base64') ?? '';
    const key = await actFor(knownKeys.get(name) ?? UNKNOWN, () =>
      findKeyByLookup(database, lookups, clock.now()),
    );
    if (key === undefined) throw await unknownKey();
    knownKeys.set(name, key.watcherId);
    if (key.state !== 'valid') throw refusalOf(key.state);
    if (key.isSuspended) throw new Fault('forbidden', SUSPENDED);
    return key;
  }

  /**
   * Without a secret, this process can't find the keys that are stored under it, and its client should not give up. A key may have come
   * under another secret until it was looked up, so the secrets are read after that.
   */
  async function unknownKey(): Promise<Fault> {
    return lacksKek(kekIdsOf(keyRing), await readKekIds())
      ? new Fault('unavailable', "The API key can't be checked: this process lacks a secret of the service")
      : refusalOf('unknown');
  }

  /** A suspended watcher is found too, because its operator may look into what it has. */
  async function findNamed(named: string | string[] | undefined): Promise<number> {
    const id = typeof named === 'string' ? parseWhole(named) : undefined;
    if (id === undefined)
      throw invalid(
        HEADER_PATH,
        'must be the id of a watcher, because the request has the token of the operator',
      );
    const watcher = await actFor(OPERATOR, () => findWatcher(database, id, clock.now()));
    if (watcher === undefined) throw new Fault('not_found', 'Watcher not found');
    if (watcher.deletingAt !== undefined) throw new Fault('not_found', 'The watcher is being deleted');
    return id;
  }

  return async (request: FastifyRequest): Promise<{ watcherId: number; key: PresentedKey | undefined }> => {
    const { authorization, [WATCHER_HEADER]: named } = request.headers;
    if (hasToken(authorization)) {
      noteOperator(request);
      return { watcherId: await findNamed(named), key: undefined };
    }
    const key = await findKey(authorization);
    // A gateway that passes a client's headers on must not let the client believe that it chose the watcher.
    if (named !== undefined)
      throw invalid(HEADER_PATH, 'is for the operator: an API key names its watcher itself');
    return { watcherId: key.watcherId, key };
  };
}

const HEADER_PATH = `/${WATCHER_HEADER}`;
