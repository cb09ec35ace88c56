import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { computeCapacity, type Load } from '../../src/domain/capacity.ts';
import { unitCosts } from '../../src/domain/unit-costs.ts';

const small: Load = {
  ...{ tps: 1, addresses: 1_000, deliveries: 0.1, blockSeconds: 12, receivers: 10, reads: 10, days: 30 },
  databaseCores: 8,
};
const used = (load: Partial<Load>, step: number, of: string) =>
  computeCapacity({ ...small, ...load }).steps[step]?.shares.find((share) => share.of === of)?.used ?? NaN;

describe('the capacity model', () => {
  test('lets the smallest step carry a small load, and names the part that is used up first', () => {
    const { carriedBy, nextLimit, steps } = computeCapacity(small);
    assert.equal(carriedBy, 'one process with the embedded database');
    assert.ok(nextLimit !== undefined && nextLimit.at > 1);
    const shares = steps[0]?.shares ?? [];
    assert.equal(nextLimit.of, shares.toSorted((one, other) => other.used - one.used)[0]?.of);
  });

  test('at the multiple that it names, the step still carries the load, and above it no more', () => {
    const { nextLimit, carriedBy } = computeCapacity(small);
    const times = (factor: number) =>
      computeCapacity({
        ...small,
        ...{ tps: small.tps * factor, deliveries: small.deliveries * factor, reads: small.reads * factor },
        blockSeconds: small.blockSeconds / factor,
      }).carriedBy;
    assert.equal(times((nextLimit?.at ?? 0) * 0.999), carriedBy);
    assert.notEqual(times((nextLimit?.at ?? 0) * 1.001), carriedBy);
  });

  test('needs a larger step as soon as a measured rate is used by more than half', () => {
    const rate = unitCosts.embeddedBlocks.value;
    const under = computeCapacity({ ...small, deliveries: rate * 0.49 });
    const over = computeCapacity({ ...small, deliveries: rate * 0.51 });
    assert.equal(under.carriedBy, 'one process with the embedded database');
    assert.equal(over.carriedBy, 'one process on PostgreSQL');
    const both = unitCosts.processDeliveries.value * 0.51;
    assert.equal(computeCapacity({ ...small, deliveries: both }).carriedBy, 'roles on one PostgreSQL');
  });

  test('no step carries a chain that one follower cannot follow', () => {
    const { carriedBy, nextLimit } = computeCapacity({
      ...small,
      tps: 1e6 / unitCosts.transactionService.value,
    });
    assert.deepEqual({ carriedBy, nextLimit }, { carriedBy: undefined, nextLimit: undefined });
  });

  test('says that the overhead of Citus is left out, and how many workers the database time needs', () => {
    const { steps } = computeCapacity({ ...small, deliveries: 3_000, databaseCores: 1 });
    const citus = steps.at(-1);
    assert.equal(citus?.isMeasured, false);
    const cores = used({ deliveries: 3_000, databaseCores: 1 }, 2, 'database server');
    assert.match(citus?.takes ?? '', new RegExp(`${Math.ceil(cores / 0.5)} workers?$`));
  });

  test('multiplies unit costs with the load', () => {
    const { stored, parts } = computeCapacity({ ...small, addresses: 1_000_000, deliveries: 2, days: 10 });
    const bytes = unitCosts.notificationBytes.value + unitCosts.attemptBytes.value;
    assert.equal(stored.addressBytes, 1_000_000 * unitCosts.addressBytes.value);
    assert.equal(stored.historyBytes, 10 * 2 * 86_400 * bytes);
    assert.equal(parts.find(({ part }) => part === 'database')?.walBytes, 2 * unitCosts.wal.value);
    const delivery = parts.find(({ part }) => part === 'delivery');
    assert.equal(delivery?.cores, (2 * unitCosts.deliveryService.value) / 1e6);
  });
});
