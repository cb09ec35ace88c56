/**
 * Short functions for tests of the address filter.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type Address, toBytes } from '../../src/core/hex.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { lockCommits } from '../../src/store/blocks/commit-lock.ts';
import type { Database, Tx } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { type AddressFilter, createAddressFilter } from '../../src/store/matching/address-filter.ts';
import { listMatches } from '../../src/store/matching/matching.ts';
import { noteChanges } from '../../src/store/watchers/note-changes.ts';
import { addressOf, headerOf, noon, transferOf } from './chain-story.ts';
import { createTestClock } from './clock.ts';

/** Addresses that are never watched. */
export const strangers = Array.from({ length: 40 }, (_, index) => addressOf(0xf000 + index));

/** A filter of a process that leads, for any number of records; `parts` overrides options. */
export function testFilter(
  database: Database,
  parts: Partial<Parameters<typeof createAddressFilter>[0]> = {},
): AddressFilter {
  return createAddressFilter({
    ...{ database, clock: createTestClock(), log: silentLog(), metrics: createMetrics('test') },
    ...{ leads: () => true, minRecords: 1, ...parts },
  });
}

/** Takes steps until the filter is built. */
export async function ready(filter: AddressFilter): Promise<void> {
  for (let steps = 0; !filter.isReady(); steps += 1) {
    assert.ok(steps < 100, 'the filter is never ready');
    await filter.step();
  }
}

/** The watched ones of these addresses, as a block finds them. */
export async function findThrough(filter: AddressFilter, addresses: readonly Address[]): Promise<Address[]> {
  const transfers = addresses.map((receiver) => transferOf({ receiver, sender: addressOf(0xdead) }));
  const matches = await filter.transaction(async (tx, narrow) => {
    await lockCommits(tx);
    return listMatches(tx, [{ header: headerOf(1), transfers }], narrow);
  });
  return matches.flatMap(({ transfer }) => transfer.receiver ?? []);
}

/** Inserts a record without its watcher and its delivery queue. `pause` comes before the change is noted. */
export async function insertRecord(
  tx: Tx,
  address: Address,
  { id = randomUUID(), pause = async () => {} }: { id?: string; pause?(): Promise<void> } = {},
): Promise<void> {
  await tx.query(sql`
    insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url, created_at,
      updated_at)
    values (1, ${id}, 1, 1, ${toBytes(address)}, true, true, 'https://one.example', ${noon}, ${noon})`);
  await pause();
  await noteChanges(tx, 1, [{ from: undefined, to: { laneId: 1, address } }]);
}

/** The same in its own transaction. */
export const addRecord = (database: Database, address: Address): Promise<void> =>
  database.transaction((tx) => insertRecord(tx, address));
