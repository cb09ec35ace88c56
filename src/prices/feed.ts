/**
 * Keeps the price of one asset up to date. One step asks all sources of the asset, decides on a price, and stores it with
 * every source's answer.
 */
import { startAbort } from '../core/abort.ts';
import type { Clock } from '../core/clock.ts';
import { type Decimal, decimalText } from '../core/decimal.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import type { Step } from '../core/loop.ts';
import type { Metrics } from '../core/metrics.ts';
import { storedText } from '../core/stored-text.ts';
import { decidePrice } from '../domain/price-decision.ts';
import type { Database } from '../store/db/db.ts';
import {
  findLastRoundAt,
  insertRound,
  type PriceRound,
  type SourceReport,
} from '../store/prices/price-rounds.ts';
import { findAnchorPrice } from '../store/prices/prices.ts';
import type { PriceSource, Quote } from './sources.ts';

export type PriceFeed = {
  /** The symbol of the coin or token. */
  asset: string;
  everyMs: number;
  /** How long an accepted price decides between sources that disagree. */
  maxAgeMs: number;
  sources: readonly PriceSource[];
};

export type PriceFeedOptions = {
  database: Database;
  clock: Clock;
  log: Log;
  metrics: Metrics;
  /** Whether this process is the one that asks. The others stand by. */
  isLeader(): Promise<boolean>;
};

/** A source that has not answered after this time has failed in this round. */
const SOURCE_MS_MAX = 10_000;
/** How often a standby process asks whether it leads now. */
const STANDBY_MS = 2_000;
/** The longest wait, because a clock that is set forward makes a round due earlier. */
const WAIT_MS_MAX = 10_000;
/** A server's or node's error message goes into the database, the log and the status page. */
const MESSAGE_CHARACTERS_MAX = 300;

type SourceAnswer = { source: PriceSource; quote: Quote } | { source: PriceSource; message: string };

/**
 * Returns the step, and how long to wait after it. Stored rounds decide when the next one is due, so another process
 * continues where this one ends. A source that fails is part of the round as `failed`, and is asked again in the next one.
 */
export function createPriceFeed(
  { database, clock, log, metrics, isLeader }: PriceFeedOptions,
  { asset, everyMs, maxAgeMs, sources }: PriceFeed,
): { step: Step; idleMs(): number } {
  const { report, forget } = createRoundReport({ asset, log, metrics });
  let waitMs = STANDBY_MS;
  let reportedMs = Number.NEGATIVE_INFINITY;

  /** A round in the future (this clock was set back) does not delay the next one. */
  function untilDue(roundAt: Date | undefined): number {
    if (roundAt === undefined) return 0;
    const elapsedMs = clock.now().getTime() - roundAt.getTime();
    return elapsedMs < 0 ? 0 : Math.max(0, everyMs - elapsedMs);
  }

  const step: Step = async (signal) => {
    waitMs = STANDBY_MS;
    const isLeading = await isLeader().catch((error: unknown) => {
      // By now another process has read a round and reports it.
      if (clock.steadyMs() - reportedMs > everyMs) forget();
      throw error;
    });
    if (!isLeading) {
      forget();
      return 'idle';
    }
    const lastRoundAt = await findLastRoundAt(database, asset);
    waitMs = untilDue(lastRoundAt);
    if (waitMs > 0) return 'idle';
    const timeoutMs = Math.min(SOURCE_MS_MAX, everyMs);
    const answers = await Promise.all(sources.map((source) => ask(source, timeoutMs, signal)));
    signal.throwIfAborted();
    const now = clock.now();
    const last = await findAnchorPrice(database, asset, { now, maxAgeMs });
    const round = decideRound(answers, { asset, now, last: last?.price });
    const outcome = await insertRound(database, round, lastRoundAt);
    waitMs = untilDue(round.at);
    // If another process stored this round first, that process reports it.
    if (outcome === 'stored') {
      report(round);
      reportedMs = clock.steadyMs();
    }
    return 'idle';
  };

  return { step, idleMs: () => Math.min(waitMs, WAIT_MS_MAX) };
}

async function ask(source: PriceSource, timeoutMs: number, parent: AbortSignal): Promise<SourceAnswer> {
  const limit = startAbort(parent, timeoutMs);
  try {
    return { source, quote: await source.read(limit.signal) };
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    return { source, message: storedText(messageOf(error), MESSAGE_CHARACTERS_MAX) };
  } finally {
    limit.release();
  }
}

function decideRound(
  answers: readonly SourceAnswer[],
  { asset, now, last }: { asset: string; now: Date; last: Decimal | undefined },
): PriceRound {
  const quotes = answers.flatMap((answer) =>
    'quote' in answer
      ? { ...answer.quote, source: answer.source.name, maxAgeMs: answer.source.maxAgeMs }
      : [],
  );
  const { judged, ...decision } = decidePrice(quotes, { now, last });
  const reports = [
    ...judged.map(({ observation: { source, price, conf, at }, verdict }): SourceReport => {
      return { source, price, conf, observedAt: at, verdict, message: undefined };
    }),
    ...answers.flatMap((answer) => ('message' in answer ? failed(answer.source, answer.message) : [])),
  ];
  return { asset, at: now, reports, ...decision };
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

/** Metrics of each round; log lines when the verdict about a source changes, or there is no agreed price any more. */
function createRoundReport({
  asset,
  log,
  metrics,
}: { asset: string } & Pick<PriceFeedOptions, 'log' | 'metrics'>) {
  const verdicts = new Map<string, SourceReport['verdict']>();
  let isAlarmed = false;

  function report({ price, reports, isDisputed }: PriceRound): void {
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
    const decided = price === undefined ? null : decimalText(price);
    if (isAlarmed && !wasAlarmed) log.warn({ asset, price: decided, isDisputed }, 'price.alarm');
    else log.debug({ asset, price: decided }, 'price.decided');
  }

  return {
    report,
    /** Another process reports now. */
    forget(): void {
      metrics.priceDisputed.remove({ asset });
      verdicts.clear();
      isAlarmed = false;
    },
  };
}
