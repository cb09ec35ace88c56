import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bucketBoundsMs, percentilesOf } from '../../src/domain/time-buckets.ts';

test('a bucket is at most 10 % wide, and the buckets reach a month', () => {
  for (const [index, bound] of bucketBoundsMs.entries()) {
    const below = bucketBoundsMs[index - 1] ?? -1;
    assert.ok(bound > below);
    // The smallest time of the bucket is a millisecond above the bound before it.
    assert.ok(bound <= (below + 1) * 1.1, `${below} to ${bound}`);
  }
  assert.ok((bucketBoundsMs.at(-1) ?? 0) >= 31 * 86_400_000);
});

test('percentiles are the upper bounds of their buckets', () => {
  const of = (...times: number[]) =>
    percentilesOf(
      Map.groupBy(times, (ms) => bucketBoundsMs.findIndex((bound) => ms <= bound))
        .entries()
        .reduce((counts, [bucket, own]) => counts.set(bucket, own.length), new Map<number, number>()),
    );
  assert.equal(of(), undefined);
  assert.deepEqual(of(7), { count: 1, p50Ms: 7, p95Ms: 7, p99Ms: 7 });
  const hundred = Array.from({ length: 100 }, (_, index) => (index < 98 ? 5 : 1_000));
  const bound = bucketBoundsMs.find((one) => one >= 1_000);
  assert.deepEqual(of(...hundred), { count: 100, p50Ms: 5, p95Ms: 5, p99Ms: bound });
});
