/**
 * What must be: from the blocks that are stored and the records that watch it recomputes what the database should hold, and
 * compares. What an event makes of one notification is in rules.ts.
 */
import type { Hash } from '../../src/core/hex.ts';
import type { SimChain } from './chain.ts';
import { isOpen, type Notification, type SimRecord, storedRow, undo, wantedRow, watches } from './rules.ts';
import type { StoredNotification, StoredState } from './state.ts';

export type Oracle = ReturnType<typeof createOracle>;
type OracleOptions = { chain: SimChain; confirmations: number; fail(problem: string): void };

export function createOracle({ chain, confirmations, fail }: OracleOptions) {
  const records = new Map<string, SimRecord>();
  const notifications = new Map<string, Notification>();
  const byId = new Map<number, Notification>();
  const blocks = new Map<number, Hash>();

  /** Blocks went, others came, and some have confirmations now. */
  function followBlocks(stored: StoredState['blocks']): void {
    const hashes = new Map(stored.map(({ number, hash }) => [number, hash]));
    for (const [number, hash] of blocks) {
      if (hashes.get(number) === hash) continue;
      blocks.delete(number);
      for (const one of notifications.values()) if (one.block === number) undo(one);
    }
    for (const { number, hash, parent } of stored) {
      if (blocks.has(number)) continue;
      if (blocks.size > 0 && blocks.get(number - 1) !== parent)
        fail(`block ${number} is stored on another than its parent`);
      add(number, hash);
    }
    const tip = Math.max(...blocks.keys());
    for (const one of notifications.values()) {
      if (one.state !== 'held' || one.releaseHeight > tip) continue;
      one.releaseHeight = 0;
      if (one.turn === undefined) one.state = 'waiting';
    }
  }

  /** One for each transfer and each record that watches it; what was there stays, what was gone is there again. */
  function add(number: number, hash: Hash): void {
    blocks.set(number, hash);
    if (chain.isLie(hash)) fail(`block ${number} is stored, which only the liar has`);
    const transfers = chain.find(hash)?.transactions.flatMap((transaction) => transaction.transfers) ?? [];
    for (const [position, transfer] of transfers.entries()) {
      for (const record of records.values()) {
        if (!watches(record, transfer)) continue;
        const key = keyOf(record.id, transfer.txHash, transfer.kind, transfer.ordinal);
        const { settings } = record;
        const fresh = {
          ...{ record, transfer, block: number, state: 'held' as const, retries: 0, retryMs: undefined },
          releaseHeight: number + Math.max(confirmations, settings.confirmations),
          turn: settings.strictOrder ? number * TURNS_PER_BLOCK + position : undefined,
        };
        const known = notifications.get(key);
        if (known === undefined)
          notifications.set(key, { ...fresh, revision: 0, redelivery: 0, heard: new Set() });
        else if (known.state === 'withdrawn' || known.revision % 2 === 1)
          Object.assign(known, fresh, { revision: known.revision + (known.revision % 2) });
      }
    }
  }

  /** Of those of a record that go one at a time the first goes, unless one is under way. */
  function giveTurns(): void {
    const open = Array.from(notifications.values()).filter((one) => one.turn !== undefined && isOpen(one));
    const served = new Set(open.filter(({ state }) => state === 'waiting').map(({ record }) => record));
    for (const one of open.sort((first, second) => (first.turn ?? 0) - (second.turn ?? 0))) {
      if (served.has(one.record)) continue;
      served.add(one.record);
      if (one.releaseHeight === 0) one.state = 'waiting';
    }
  }

  /** What waits for a deleted record is cancelled. */
  function remove(record: SimRecord): void {
    record.isGone = true;
    for (const one of notifications.values())
      if (one.record === record && isOpen(one)) one.state = 'cancelled';
  }

  function compare(stored: readonly StoredNotification[]): void {
    giveTurns();
    const missing = new Set(notifications.keys());
    for (const row of stored) {
      const key = keyOf(row.record, row.hash, row.kind, row.ordinal);
      const wanted = notifications.get(key);
      if (wanted === undefined) {
        fail(`notification ${row.id} should not be`);
        return;
      }
      if (!missing.delete(key)) fail(`notification ${row.id} is there twice`);
      byId.set(row.id, wanted);
      // It became due after its record had gone: whoever reads it cancels it.
      if (row.state === 'cancelled' && isOpen(wanted) && wanted.record.isGone) wanted.state = 'cancelled';
      const [is, should] = [JSON.stringify(storedRow(row)), JSON.stringify(wantedRow(wanted))];
      if (is !== should) fail(`notification ${row.id} is ${is}, should be ${should}`);
    }
    for (const key of missing) fail(`there is no notification ${key}`);
  }

  /** Why it is not over yet. What is held lacks confirmations: the chain has ended. */
  function findUnfinished(): string | undefined {
    const { number, hash } = chain.head().header;
    if (blocks.get(number) !== hash) return `block ${number} is not stored`;
    const open = Array.from(byId).find(([, { state }]) => state === 'waiting');
    return open && `notification ${open[0]} is still waiting`;
  }

  /** When nothing is open any more: what the chain says must have been heard, and nothing else. */
  function judge(): void {
    const canonical = new Set<Hash>();
    for (const [number, hash] of blocks) {
      const block = chain.at(chain.head(), number);
      if (block?.header.hash !== hash) fail(`block ${number} is not of the chain`);
      for (const transaction of block?.transactions ?? []) canonical.add(transaction.hash);
    }
    for (const [key, { state, revision, heard, transfer, record }] of notifications) {
      if (state === 'processed' && !heard.has(revision)) fail(`nobody heard of ${key}`);
      const isWatched = !record.isGone && !record.hasChanged && canonical.has(transfer.txHash);
      if (isWatched && (state === 'withdrawn' || revision % 2 === 1)) fail(`${key} is gone for ever`);
    }
  }

  return { records, notifications, byId, followBlocks, remove, compare, findUnfinished, judge };
}

const TURNS_PER_BLOCK = 1_000;
const keyOf = (...parts: [record: string, hash: Hash, kind: string, ordinal: number]) => parts.join(' ');
