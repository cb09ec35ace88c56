/**
 * A block with more notifications than are compared at once. The parts find what one comparison of everything finds.
 */
import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { compareBatch } from '../../src/audit/compare-batch.ts';
import type { Transfer } from '../../src/domain/block.ts';
import { sql } from '../../src/store/db/sql.ts';
import {
  addWatchers,
  alice,
  atOnce,
  bob,
  carol,
  headerOf,
  later,
  mine,
  noon,
  transferOf,
  watchAddress,
} from '../kit/chain-story.ts';
import { onSampledDatabase } from '../kit/each-database.ts';

const BLOCK = 2;
const stored = later(60_000);
/** After a reorg, notifications of the first day that is kept may be older. */
const RETENTION_MS = 2 * 86_400_000;

onSampledDatabase(import.meta.url, ({ database }) => {
  let transfers: Transfer[];

  /** The outcomes about the second block, with at most this many rows at once. */
  async function compare(rowsMax?: number): Promise<string[] | 'too many'> {
    const read = {
      ...{ header: headerOf(BLOCK, 1, 1), proved: true, traced: true, transfers, activities: [] },
      pairEvents: [],
    };
    const options = {
      ...{ isProofOn: true, confirmations: 0, retryDelayMs: () => 60_000, pairs: [] },
      rules: { listeners: [], accruals: new Map(), referral: undefined },
      ...{ keptSince: later(-RETENTION_MS), swapsKeptSince: noon, statesKeptSince: noon },
      ...(rowsMax !== undefined && { rowsMax }),
    };
    const compared = await compareBatch(database(), [read], options);
    if (compared === 'too many') return compared;
    return compared.outcomes.map((one) => (typeof one === 'string' ? one : one.message)).sort();
  }

  /** Two watchers with 12 watched addresses; some are deleted or changed, and some notifications are wrong or missing. */
  beforeEach(async () => {
    await addWatchers(database(), 1, 2);
    const watches = [];
    for (let index = 0; index < 12; index++)
      watches.push(
        await watchAddress(database(), {
          ...{ watcherId: 1 + (index % 2), url: `https://host${index}.example/hook` },
          address: index < 8 ? bob : alice,
        }),
      );
    await mine(database(), headerOf(1), [], { now: stored });
    const told = transferOf();
    await mine(database(), headerOf(BLOCK), [told], { ...atOnce, now: stored });
    await database().query(sql`update queue set may_be_seen = true`);
    transfers = [{ ...told, amount: 5n }, ...Array.from({ length: 3 }, () => transferOf())];
    await mine(database(), headerOf(BLOCK, 1, 1), transfers, {
      ...{ ...atOnce, now: stored, reorg: { ancestorNumber: 1 } },
    });
    const ids = watches.map(({ id }) => id);
    const remove = (id: string | undefined, amount: number) => sql`
      with gone as (
        delete from notification where watched_address_id = ${id} and amount = ${amount} returning shard_id, id
      ) delete from queue q using gone g where q.shard_id = g.shard_id and q.id = g.id`;
    await database().query(remove(ids[0], 5));
    await database().query(remove(ids[3], 1));
    await database().query(
      sql`update notification set amount = amount + 1 where watched_address_id = ${ids[1]} and amount = 1`,
    );
    await database().query(sql`delete from watched_address where id = any(${[ids[2], ids[9]]}::uuid[])`);
    await database().query(
      sql`update watched_address set address = ${Buffer.from(carol.slice(2), 'hex')}, updated_at = ${later(70_000)} where id = ${ids[5]}`,
    );
  });

  test('parts of any size find the same, as long as one watched address fits', async () => {
    const all = await compare();
    assert.ok(all !== 'too many');
    assert.ok(new Set(all).size > 8);
    for (const kind of ['equal', 'record_deleted', 'record_changed']) assert.ok(all.includes(kind), kind);
    for (let rowsMax = 12; rowsMax < 50; rowsMax++)
      assert.deepEqual(await compare(rowsMax), all, `${rowsMax}`);
  });

  test('a block is not compared if one watched address has more', async () => {
    for (const rowsMax of [1, 2, 3]) assert.equal(await compare(rowsMax), 'too many');
  });
});
