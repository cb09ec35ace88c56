/**
 * Small collections of garbage free the answers of statements. With the driver's promises only full ones did.
 */
import assert from 'node:assert/strict';
import { constants, PerformanceObserver } from 'node:perf_hooks';
import { test } from 'node:test';
import { sql } from '../../../src/store/db/sql.ts';
import { createTestDatabase } from '../../kit/database.ts';

const STATEMENTS = 3_000;

test('small collections of garbage free the answers of statements', async () => {
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  const counts = { small: 0, full: 0 };
  const observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const kind = 'detail' in entry && (entry.detail as { kind: number }).kind;
      if (kind === constants.NODE_PERFORMANCE_GC_MINOR) counts.small += 1;
      if (kind === constants.NODE_PERFORMANCE_GC_MAJOR) counts.full += 1;
    }
  });
  observer.observe({ entryTypes: ['gc'] });
  for (let index = 0; index < STATEMENTS; index += 1)
    await database.query(sql`
      select number, sha256(number::text::bytea) as one, sha256(number::text::bytea) as other, repeat('a', 40) as text
      from generate_series(1, 125) as number`);
  observer.disconnect();
  // When they kept the answers, a third of all collections were full ones.
  assert.ok(counts.full * 20 < counts.small, JSON.stringify(counts));
});
