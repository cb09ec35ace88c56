/**
 * Statistics of deliveries by a scan of the attempts, as a model of the sums that the program keeps.
 */
import { SHARD_STEP, shardOf } from '../../src/domain/shard.ts';
import { bucketBoundsMs } from '../../src/domain/time-buckets.ts';
import { noon } from './chain-story.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
export const ORIGINS = ['https://one.example:443', 'https://two.example:443'];
/** Shards of two watchers, of which the first has two slices. */
export const SHARDS = [shardOf(1), shardOf(1, 1), shardOf(2)];

export type Notification = { shard: number; createdMs: number; isHeld: boolean; record: number };
export type Attempt = {
  notification: number;
  revision: number;
  lane: number;
  afterMs: number;
  durationMs: number;
  outcome: 'success' | 'http_5xx' | 'timeout';
  /** Whether it stores how many attempts failed before it, if it is the first success of its message. */
  knowsFailures: boolean;
};

/** Its last byte is the slice of the shard. */
export const recordId = (shard: number, record: number) =>
  `00000000-0000-4000-8000-00000000${record}${shard}${shard === 1 ? '01' : '00'}`;

/** What a scan of the attempts gives: sums by their key as text. */
export function scan(notifications: readonly Notification[], attempts: readonly Attempt[], now: Date) {
  const sums = new Map<string, Map<string, number>>();
  const records = new Map<string, Map<string, number>>();
  const add = (to: typeof sums, key: string, name: string, count = 1) => {
    const own = to.get(key) ?? new Map<string, number>();
    to.set(key, own.set(name, (own.get(name) ?? 0) + count));
  };
  const bucketOf = (ms: number) => bucketBoundsMs.findIndex((bound) => ms <= bound);
  for (const [index, one] of attempts.entries()) {
    const of = notifications[one.notification];
    if (of === undefined) continue;
    const shard = SHARDS[of.shard] ?? 0;
    const startMs = noon.getTime() + of.createdMs + one.afterMs;
    const earlier = attempts
      .slice(0, index)
      .filter(({ notification: same, revision }) => same === one.notification && revision === one.revision);
    const isSuccess = one.outcome === 'success';
    const isDelivered = isSuccess && !earlier.some(({ outcome }) => outcome === 'success');
    const isAnswered = one.outcome !== 'timeout';
    const names: [string, number][] = [
      ['attempts', 1],
      ...(isSuccess ? [] : [['failed_attempts', 1] as [string, number]]),
      ...(isDelivered ? [['delivered', 1] as [string, number]] : []),
      ...(isDelivered && earlier.length === 0 ? [['first_attempt', 1] as [string, number]] : []),
      ...(isAnswered
        ? ([
            ['answered', 1],
            ['answer_ms', one.durationMs],
            [`a${bucketOf(one.durationMs)}`, 1],
          ] as [string, number][])
        : []),
      ...(isDelivered && one.revision === 0 && !of.isHeld
        ? [[`l${bucketOf(one.afterMs + one.durationMs)}`, 1] as [string, number]]
        : []),
    ];
    const origin = ORIGINS[one.lane];
    for (const [owner, name] of [
      ...(origin === undefined ? [] : [[shard, origin] as const]),
      [shard, ''] as const,
      [0, ''] as const,
    ])
      for (const [unit, unitMs] of [
        ['h', HOUR_MS],
        ['d', DAY_MS],
      ] as const) {
        const start = new Date(Math.floor(startMs / unitMs) * unitMs).toISOString();
        for (const [counter, count] of names) add(sums, `${owner} ${unit} ${start} ${name}`, counter, count);
        const from = (Math.floor(now.getTime() / unitMs) - (unit === 'h' ? 24 : 30)) * unitMs;
        // Of all shards of the watcher.
        const window = `${owner % SHARD_STEP} ${unit.toUpperCase()} ${new Date(from).toISOString()} ${name}`;
        if (startMs >= from) for (const [counter, count] of names) add(sums, window, counter, count);
      }
    const day = new Date(Math.floor(startMs / DAY_MS) * DAY_MS);
    const hour = Math.floor((startMs - day.getTime()) / HOUR_MS);
    const kinds = ['attempts', 'failed_attempts', 'delivered', 'first_attempt'];
    const key = `${shard} ${recordId(of.shard, of.record)} ${day.toISOString()}`;
    for (const [name, count] of names) {
      if (kinds.includes(name)) add(records, key, String(4 * hour + kinds.indexOf(name)), count);
      if (name.startsWith('l')) add(records, key, String(128 + Number(name.slice(1))), count);
    }
  }
  for (const [key, counters] of sums) if (/ [HD] /.test(key)) addPercentiles(counters);
  return { sums: plain(sums), records: plain(records) };
}

/** Of both histograms: how many times there are, and the buckets of three percentiles. */
function addPercentiles(counters: Map<string, number>): void {
  for (const kind of ['l', 'a']) {
    const buckets = [...counters]
      .filter(([name]) => new RegExp(`^${kind}\\d`).test(name))
      .flatMap(([name, count]) => Array.from({ length: count }, () => Number(name.slice(1))))
      .toSorted((one, other) => one - other);
    const at = (share: number) => buckets[Math.ceil(buckets.length * share) - 1] ?? 0;
    for (const [index, value] of [buckets.length, at(0.5), at(0.95), at(0.99)].entries())
      counters.set(`${kind}-percentiles ${index}`, value);
  }
}

/** Without zeros, in the order of their keys. */
export const plain = (sums: ReadonlyMap<string, ReadonlyMap<string, number>>) =>
  Object.fromEntries(
    [...sums]
      .toSorted(([one], [other]) => (one < other ? -1 : 1))
      .map(([key, counters]) => [
        key,
        Object.fromEntries(
          [...counters].filter(([, count]) => count > 0).toSorted(([one], [other]) => (one < other ? -1 : 1)),
        ),
      ]),
  );
