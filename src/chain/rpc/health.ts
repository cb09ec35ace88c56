/**
 * Records the health of a node for each method: calls, errors, and recent durations.
 */
import type { Clock } from '../../core/clock.ts';

export type MethodHealth = {
  method: string;
  calls: number;
  /** Answers that were errors, and calls without an answer. */
  errors: number;
  /** Calls that met a rate limit. They don't count as errors. */
  limited: number;
  /** Durations of recent exchanges. Undefined if there were none. A batch counts once for each of its methods. */
  p50Ms: number | undefined;
  p95Ms: number | undefined;
  lastError: { message: string; at: Date } | undefined;
};

/**
 * The outcome of one call. `lacking` (the node lacks the method) and `error` are answers of the node. `failed`
 * means that no answer came.
 */
export type CallOutcome =
  | { kind: 'ok' }
  | { kind: 'limited' }
  | { kind: 'lacking' | 'error' | 'failed'; message: string };

export type Health = {
  /** Records the outcomes of the calls of one exchange, which took `tookMs`. */
  note(calls: readonly { method: string }[], outcomes: readonly CallOutcome[], tookMs: number): void;
  /** Whether the node's last answer to this method said that it lacks it. */
  lacks(method: string): boolean;
  /** One entry for each method, so at most as many as the methods that Chainbell uses. */
  list(): MethodHealth[];
};

/** Recent durations. */
export type DurationWindow = {
  add(ms: number): void;
  count(): number;
  /** By nearest rank. Undefined without samples. */
  percentile(percent: number): number | undefined;
  clear(): void;
};

/** Enough for a 95th percentile, and few enough to sort at each call. */
const SAMPLES_MAX = 60;
const SAMPLE_AGE_MS_MAX = 600_000;

export function createDurationWindow(clock: Clock): DurationWindow {
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
  const tallies = new Map<string, { counts: Counts; times: DurationWindow; isLacking: boolean }>();

  function tallyOf(method: string) {
    const tally = tallies.get(method) ?? {
      counts: { calls: 0, errors: 0, limited: 0, lastError: undefined },
      times: createDurationWindow(clock),
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
