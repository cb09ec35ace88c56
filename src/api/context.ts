/**
 * The types that all routes share: the server, and the dependencies that the program passes to it.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type { FastifyBaseLogger, FastifyInstance, RawServerDefault } from 'fastify';
import type { Clock } from '../core/clock.ts';
import type { Address, Hash } from '../core/hex.ts';
import type { Log } from '../core/log.ts';
import type { Metrics } from '../core/metrics.ts';
import type { KeyRing } from '../domain/key-ring.ts';
import type { ValuedPair } from '../domain/pair.ts';
import type { PriceBook } from '../domain/price-book.ts';
import type { WebhookPolicy } from '../domain/webhook-url.ts';
import type { Database } from '../store/db/db.ts';
import type { Limits } from '../store/watchers/limits.ts';
import type { WatchedAddress } from '../store/watchers/watched.ts';
import type { ConsoleFiles } from './http/console-files.ts';
import type { DeploymentDetails } from './ops/deployment-body.ts';
import type { StatusBody } from './ops/status-body.ts';
import type { SupplyReader } from './public/supply-reader.ts';

export type Api = FastifyInstance<
  RawServerDefault,
  IncomingMessage,
  ServerResponse,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

export type ApiOptions = {
  database: Database;
  /** Where reads go that a replica may serve; `database` without one. */
  reads?: Reads | undefined;
  clock: Clock;
  log: Log;
  metrics: Metrics;
  keyRing: KeyRing;
  webhookPolicy: WebhookPolicy;
  chain: ChainDescription;
  nativeSymbol: string;
  sendTest: SendTest;
  showMessage: ShowMessage;
  /** Undefined if this process delivers nothing. */
  inFlight: InFlight | undefined;
  attemptBell: AttemptBell;
  /** The number of confirmations before a notification is sent. */
  confirmations: number;
  limits: WatcherLimits;
  prices: PriceBook;
  /** Undefined if the supply is not configured. */
  supply: SupplyReader | undefined;
  pairs: readonly ValuedPair[];
  ops: OpsSources;
  operator: OperatorSources;
  /** The operator API is off without it. */
  adminToken: string | undefined;
  /** The console is off without them. */
  console?: ConsoleFiles | undefined;
};

/** `recent` may be some seconds behind. `current` shows everything that was committed before the read. */
export type Reads = { recent: Database; current: Database };

/** What the configuration says about the chain and the features of the API. */
export type ChainDescription = {
  id: number;
  name: string;
  has: { points: boolean; prices: boolean; pairs: boolean; supply: boolean; admin: boolean };
  /** Tokens whose symbol and decimals are known. */
  tokens: readonly { address: Address; symbol: string; decimals: number }[];
};

/** Rings when attempts are settled. It may miss some, so listeners also poll. */
export type AttemptBell = {
  /** Calls back for the attempts of a watcher, or of all if it is undefined. The returned function ends that. */
  listen(watcherId: number | undefined, onRing: () => void): () => void;
};

/** What the delivery part of this process has under way. */
export type InFlight = {
  /** Whether an attempt of this notification is being made. */
  isUnderWay(laneId: number, notificationId: number): boolean;
  /** The attempts at a receiver, and how many it takes at once; undefined if none of its delivery queues is leased here. */
  receiver(watcherId: number, origin: string): { open: number; limit: number } | undefined;
};

/** The request of a notification as it would be sent now, without secrets. Undefined if it has no URL any longer. */
type ShowMessage = (key: {
  watcherId: number;
  id: number;
}) => Promise<{ body: string; headers: Record<string, string> } | undefined>;

/** What the operator API needs from the whole program. */
export type OperatorSources = {
  /**
   * Issues a key, and creates the watcher if it is new. @throws Fault `invalid` for a name that isn't allowed, `conflict` if the
   * watcher has another number of slices or is being deleted
   */
  issueKey(watcherName: string, slices?: number): Promise<IssuedKey>;
  /** @throws Fault `not_found`, `conflict` for a revoked key */
  rotateKey(keyId: string, overlapMs: number): Promise<IssuedKey>;
  /** @throws Fault `not_found` */
  revokeKey(keyId: string): Promise<RevokedKey>;
  /** Adds the next attempts to the statistics. */
  countDeliveries(): Promise<unknown>;
  /** The effective configuration without secrets, in the form of the file. */
  configuration(): object;
  /**
   * Why a transaction earned its points, as `chainbell points explain --json` prints it. Undefined if no award is stored and the
   * nodes know no such transaction. @throws Fault `conflict` for another chain; the signal's reason when it aborts
   */
  explain(txHash: Hash, signal: AbortSignal): Promise<object | undefined>;
};

/** `key` is shown once, to its owner, and is never stored in this form. */
export type IssuedKey = {
  watcherId: number;
  watcherName: string;
  keyId: string;
  key: string;
  createdAt: Date;
};

export type RevokedKey = {
  watcherName: string;
  revokedAt: Date;
  /** Whether the watcher has another valid key. */
  hasKey: boolean;
  /** What follows from having none, and what to do. */
  remark: string | undefined;
};

/** Sends a test webhook to the URL of the watched address. It is not logged. Rejects only with the signal's reason. */
export type SendTest = (record: WatchedAddress, signal: AbortSignal) => Promise<TestResult>;
/** The outcome of a test webhook. */
export type TestResult = {
  outcome: string;
  status: number | undefined;
  durationMs: number;
  responseText: string | undefined;
  /** The request, without its secrets. */
  request: { url: string; headers: Record<string, string>; body: string };
};

/** The limits of watchers, and how many notifications of a watcher may wait before the operator gets an alarm. */
export type WatcherLimits = Limits & { pendingNotifications?: number | undefined };

export type Check = { ok: boolean; message: string };

export type OpsSources = {
  /** The checks of /readyz by name. */
  checks(): Promise<Record<string, Check>>;
  /** The state of the whole deployment. Readiness doesn't depend on it. */
  deployment?(): Promise<{ state: 'ok' | 'degraded' | 'holding'; message: string | null } | undefined>;
  /** The body of /status. */
  status(): Promise<StatusBody>;
  /** The same with the hosts of nodes, databases and price sources, for operators only. */
  fullStatus(): Promise<StatusBody>;
  /** The details for operators only. */
  details(): Promise<DeploymentDetails>;
};
