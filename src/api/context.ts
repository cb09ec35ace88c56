/**
 * What the routes of the API are built on: the server's type, and what the program gives them.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type { FastifyBaseLogger, FastifyInstance, RawServerDefault } from 'fastify';
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { Metrics } from '../core/metrics.ts';
import type { KeyRing } from '../domain/key-ring.ts';
import type { ValuedPair } from '../domain/pair.ts';
import type { PriceBook } from '../domain/price-book.ts';
import type { WebhookPolicy } from '../domain/webhook-url.ts';
import type { Database } from '../store/db/db.ts';
import type { Limits } from '../store/watchers/limits.ts';
import type { WatchedAddress } from '../store/watchers/watched.ts';
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
  clock: Clock;
  log: Log;
  metrics: Metrics;
  keyRing: KeyRing;
  webhookPolicy: WebhookPolicy;
  nativeSymbol: string;
  sendTest: SendTest;
  /** Those that every notification waits for. */
  confirmations: number;
  limits: WatcherLimits;
  prices: PriceBook;
  /** Undefined where the supply is not published. */
  supply: SupplyReader | undefined;
  pairs: readonly ValuedPair[];
  ops: OpsSources;
  /** Of the operator API, which is off without one. */
  adminToken: string | undefined;
};

/** Sends a made-up webhook to the record's URL, on no record; rejects only with the signal's reason. */
export type SendTest = (record: WatchedAddress, signal: AbortSignal) => Promise<TestResult>;
/** How a webhook went that was only to try the receiver. */
export type TestResult = {
  outcome: string;
  status: number | undefined;
  durationMs: number;
  responseText: string | undefined;
};

/** Beside the limits, how many notifications of a watcher may wait before the operator is alarmed. */
export type WatcherLimits = Limits & { pendingNotifications?: number | undefined };

export type Check = { ok: boolean; message: string };

export type OpsSources = {
  /** Each thing that must work before requests are sent here. */
  checks(): Promise<Record<string, Check>>;
  /** The state of the whole deployment, which no process's readiness depends on. */
  deployment?(): Promise<{ state: 'ok' | 'degraded' | 'holding'; message: string | null } | undefined>;
  /** The body of /status. */
  status(): Promise<StatusBody>;
  /** What only operators see. */
  details(): Promise<DeploymentDetails>;
};
