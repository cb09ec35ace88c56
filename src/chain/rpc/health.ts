/**
 * How a node fares, per method: calls, errors, and how long it took lately.
 */
import type { Clock } from '../../core/clock.ts';

export type MethodHealth = {
  method: string;
  calls: number;
  /** Answers that were errors, and calls that got none. */
  errors: number;
  /** Calls that met a rate limit, which is no error. */
  limited: number;
  /** Of recent exchanges; undefined when there was none. A batch counts once for each method in it. */
  p50Ms: number | undefined;
  p95Ms: number | undefined;
  lastError: { message: string; at: Date } | undefined;
};

/** What became of one call: lacking and error are the node's answer, failed means that none came. */
export type CallOutcome =
  | { kind: 'ok' }
  | { kind: 'limited' }
  | { kind: 'lacking' | 'error' | 'failed'; message: string };

export type Health = {
  /** The outcomes of the calls of one exchange, which took so long. */
  note(calls: readonly { method: string }[], outcomes: readonly CallOutcome[], tookMs: number): void;
  /** Whether the node last said of this method that it does not have it. */
  lacks(method: string): boolean;
  /** By method; there are as many as methods that this program knows. */
  list(): MethodHealth[];
};

/** Durations of the recent past. */
export type Window = {
  add(ms: number): void;
  count(): number;
  /** The nearest rank; undefined when there is nothing. */
  percentile(percent: number): number | undefined;
  clear(): void;
};

/** Enough for a 95th percentile, and few enough to sort at each question. */
const SAMPLES_MAX = 60;
const SAMPLE_AGE_MS_MAX = 600_000;

export function createWindow(clock: Clock): Window {
  const samples: { ms: number; at: number }[] = [];
  const recent = () => {
    const oldest = clock.now().getTime() - SAMPLE_AGE_MS_MAX;
    while (samples[0] !== undefined && samples[0].at < oldest) samples.shift();
    return samples;
  };
  return {
    add(ms) {
      samples.push({ ms, at: clock.now().getTime() });
      if (samples.length > SAMPLES_MAX) samples.shift();
    },
    count: () => recent().length,
    percentile(percent) {
      const sorted = recent()
        .map(({ ms }) => ms)
        .sort((one, other) => one - other);
      return sorted[Math.max(0, Math.ceil((percent / 100) * sorted.length) - 1)];
    },
    clear() {
      samples.length = 0;
    },
  };
}

export function createHealth(clock: Clock): Health {
  type Counts = Omit<MethodHealth, 'method' | 'p50Ms' | 'p95Ms'>;
  const tallies = new Map<string, { counts: Counts; times: Window; isLacking: boolean }>();

  function tallyOf(method: string) {
    const tally = tallies.get(method) ?? {
      counts: { calls: 0, errors: 0, limited: 0, lastError: undefined },
      times: createWindow(clock),
      isLacking: false,
    };
    tallies.set(method, tally);
    return tally;
  }

  return {
    note(calls, outcomes, tookMs) {
      for (const [index, { method }] of calls.entries()) {
        const tally = tallyOf(method);
        const { counts } = tally;
        const outcome = outcomes[index];
        counts.calls += 1;
        if (outcome?.kind === 'limited') counts.limited += 1;
        if (outcome?.kind === 'ok' || outcome?.kind === 'lacking')
          tally.isLacking = outcome.kind === 'lacking';
        if (outcome === undefined || !('message' in outcome)) continue;
        counts.errors += 1;
        counts.lastError = { message: outcome.message, at: clock.now() };
      }
      for (const method of new Set(calls.map((call) => call.method))) tallyOf(method).times.add(tookMs);
    },
    lacks: (method) => tallies.get(method)?.isLacking === true,
    list: () =>
      Array.from(tallies, ([method, { counts, times }]) => ({
        method,
        ...counts,
        p50Ms: times.percentile(50),
        p95Ms: times.percentile(95),
      })),
  };
}
