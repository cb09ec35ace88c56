/**
 * The price of one asset, kept up to date: one step asks all of its sources, decides, and stores what they said and what was
 * decided.
 */
import { startAbort } from '../core/abort.ts';
import type { Clock } from '../core/clock.ts';
import { decimalText } from '../core/decimal.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import type { Step } from '../core/loop.ts';
import type { Metrics } from '../core/metrics.ts';
import { decidePrice } from '../domain/price-decision.ts';
import type { Database } from '../store/db/db.ts';
import {
  findLastRoundAt,
  insertRound,
  type PriceRound,
  type SourceReport,
} from '../store/prices/price-rounds.ts';
import { findYoungPrice } from '../store/prices/prices.ts';
import type { PriceSource, Quote } from './sources.ts';

export type PriceFeed = {
  /** The symbol of the coin or token. */
  asset: string;
  everyMs: number;
  /** For how long an accepted price decides where the sources do not agree. */
  maxAgeMs: number;
  sources: readonly PriceSource[];
};

export type PriceFeedOptions = {
  database: Database;
  clock: Clock;
  log: Log;
  metrics: Metrics;
  /** Whether this process is the one that asks; others stand by. */
  isLeader(): Promise<boolean>;
};

/** A source that has not answered by then has failed in this round. */
const SOURCE_MS_MAX = 10_000;
/** How often who stands by asks whether it leads now. */
const STANDBY_MS = 2_000;
/** What a server or a node says goes to the database, the log and the status page. */
const MESSAGE_CHARACTERS_MAX = 300;

type Decided = PriceRound & { isDisputed: boolean };
type Answer = { source: PriceSource; quote: Quote } | { source: PriceSource; message: string };

/**
 * The step and how long to wait after it. Stored rounds decide when the next one is due, so that another process goes on
 * where this one ends; a source that fails is part of the round, and asked again in the next one.
 */
export function createPriceFeed(
  { database, clock, log, metrics, isLeader }: PriceFeedOptions,
  { asset, everyMs, maxAgeMs, sources }: PriceFeed,
): { step: Step; idleMs(): number } {
  const verdicts = new Map<string, SourceReport['verdict']>();
  let waitMs = STANDBY_MS;
  let isAlarmed = false;

  const step: Step = async (signal) => {
    waitMs = STANDBY_MS;
    if (!(await isLeader())) return 'idle';
    const lastRoundAt = await findLastRoundAt(database, asset);
    waitMs = untilDue(lastRoundAt);
    if (waitMs > 0) return 'idle';
    const answers = await Promise.all(sources.map((source) => ask(source, signal)));
    signal.throwIfAborted();
    const round = await decide(answers);
    const outcome = await insertRound(database, round, lastRoundAt);
    waitMs = untilDue(round.at);
    // Whoever was faster has told it all.
    if (outcome === 'stored') report(round);
    return 'idle';
  };

  /** A round from the future (this clock was set back) does not hold up the next one. */
  function untilDue(roundAt: Date | undefined): number {
    if (roundAt === undefined) return 0;
    const elapsedMs = clock.now().getTime() - roundAt.getTime();
    return elapsedMs < 0 ? 0 : Math.max(0, everyMs - elapsedMs);
  }

  async function ask(source: PriceSource, parent: AbortSignal): Promise<Answer> {
    const limit = startAbort(parent, Math.min(SOURCE_MS_MAX, everyMs));
    try {
      return { source, quote: await source.read(limit.signal) };
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      return { source, message: messageOf(error).slice(0, MESSAGE_CHARACTERS_MAX) };
    } finally {
      limit.release();
    }
  }

  async function decide(answers: readonly Answer[]): Promise<Decided> {
    const now = clock.now();
    const last = await findYoungPrice(database, asset, { now, maxAgeMs });
    const quotes = answers.flatMap((answer) =>
      'quote' in answer
        ? { ...answer.quote, source: answer.source.name, maxAgeMs: answer.source.maxAgeMs }
        : [],
    );
    const { judged, ...decision } = decidePrice(quotes, { now, last: last?.price });
    const reports = [
      ...judged.map(({ observation: { source, price, conf, at }, verdict }): SourceReport => {
        return { source, price, conf, observedAt: at, verdict, message: undefined };
      }),
      ...answers.flatMap((answer) => ('message' in answer ? failed(answer.source, answer.message) : [])),
    ];
    return { asset, at: now, reports, ...decision };
  }

  function report({ price, reports, isDisputed }: Decided): void {
    metrics.priceDisputed.set({ asset }, isDisputed ? 1 : 0);
    for (const { source, verdict, message } of reports) {
      metrics.priceObservations.inc({ asset, source, verdict });
      if (verdicts.get(source) === verdict) continue;
      const level = verdict === 'used' ? 'info' : 'warn';
      log[level](
        { asset, source, verdict, ...(message !== undefined && { error: message }) },
        'price.source',
      );
      verdicts.set(source, verdict);
    }
    const wasAlarmed = isAlarmed;
    isAlarmed = isDisputed || price === undefined;
    const told = price === undefined ? null : decimalText(price);
    if (isAlarmed && !wasAlarmed) log.warn({ asset, price: told, isDisputed }, 'price.alarm');
    else log.debug({ asset, price: told }, 'price.decided');
  }

  return { step, idleMs: () => waitMs };
}

function failed({ name }: PriceSource, message: string): SourceReport {
  return {
    source: name,
    price: undefined,
    conf: undefined,
    observedAt: undefined,
    verdict: 'failed',
    message,
  };
}
