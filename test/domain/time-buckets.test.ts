import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bucketBoundsMs, createTimeHistogram, percentilesOf } from '../../src/domain/time-buckets.ts';

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
  const of = (...times: number[]) => {
    const histogram = createTimeHistogram();
    for (const ms of times) {
      const bucket = bucketBoundsMs.findIndex((bound) => ms <= bound);
      histogram[bucket] = (histogram[bucket] ?? 0) + 1;
    }
    return percentilesOf(histogram);
  };
  assert.equal(of(), undefined);
  assert.deepEqual(of(7), { count: 1, p50Ms: 7, p95Ms: 7, p99Ms: 7 });
  const hundred = Array.from({ length: 100 }, (_, index) => (index < 98 ? 5 : 1_000));
  const bound = bucketBoundsMs.find((one) => one >= 1_000);
  assert.deepEqual(of(...hundred), { count: 100, p50Ms: 5, p95Ms: 5, p99Ms: bound });
});
