/**
 * The step that adds attempts up to sums, killed where a test wants it, or until nothing is left.
 */
import assert from 'node:assert/strict';
import type { Database, Tx } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { createDeliveryCount } from '../../src/store/delivery/count-deliveries.ts';
import { noon } from './chain-story.ts';
import { createTestClock } from './clock.ts';

const DAY_MS = 86_400_000;
const STEPS_MAX = 2_000;
const ATTEMPTS_MS = 30 * DAY_MS;

/** A count of this database that is killed at a statement of its transaction, or after the commit, if `killedAt` is given. */
export function countOf(
  database: Database,
  { killedAt, batchIds = 1_000, now = noon }: { killedAt?: number; batchIds?: number; now?: Date } = {},
) {
  let statements = 0;
  const kill = () => {
    statements += 1;
    if (statements === killedAt) throw new Error('killed');
  };
  const watched: Database = {
    ...database,
    async transaction(work) {
      const result = await database.transaction(async (tx: Tx) => {
        const done = await work({
          ...tx,
          async query(statement) {
            kill();
            return tx.query(statement);
          },
        });
        kill();
        return done;
      });
      kill();
      return result;
    },
  };
  return createDeliveryCount({
    database: watched,
    clock: createTestClock(now),
    attemptsMs: ATTEMPTS_MS,
    batchIds,
    partReceivers: 1,
  });
}

/** Counts until nothing is left, and windows too. */
export async function countAll(
  database: Database,
  { batchIds = 1_000, now = noon }: { batchIds?: number; now?: Date } = {},
): Promise<void> {
  const count = countOf(database, { batchIds, now });
  const isDone = async () => {
    await count.step();
    const [row] = await database.query<{ is_done: boolean }>(sql`
      select counted_id = (select coalesce(max(id), 0) from delivery_attempt)
        and (select count(*) = 2 from receiver_window where built_parts = parts
          and started_at = case unit when 'H' then date_trunc('hour', ${now}::timestamptz, 'UTC') - interval '24 hours'
            else date_trunc('day', ${now}::timestamptz, 'UTC') - interval '720 hours' end) as is_done
      from statistics_state`);
    return row?.is_done;
  };
  for (let steps = 0; !(await isDone()); steps += 1)
    assert.ok(steps < STEPS_MAX, `something is left after ${STEPS_MAX} steps`);
}
