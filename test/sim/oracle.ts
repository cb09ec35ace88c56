/**
 * Recomputes, from the stored blocks and the watched addresses, the rows that the database should hold, and compares.
 * The effect of each event on one notification is in rules.ts.
 */
import type { Address, Hash } from '../../src/core/hex.ts';
import type { Transfer } from '../../src/domain/block.ts';
import type { SimChain } from './chain.ts';
import {
  hasEndedGone,
  isOpen,
  type Notification,
  onReinclusion,
  type SimRecord,
  storedRow,
  undo,
  wantedRow,
  watches,
} from './rules.ts';
import type { StoredNotification, StoredState } from './state.ts';

export type Oracle = ReturnType<typeof createOracle>;
type OracleOptions = {
  chain: SimChain;
  confirmations: number;
  /** Whether several transactions release what a block releases. */
  areSharesReleased: boolean;
  fail(problem: string): void;
};

export function createOracle({ chain, confirmations, areSharesReleased, fail }: OracleOptions) {
  const records = new Map<string, SimRecord>();
  const notifications = new Map<string, Notification>();
  const byId = new Map<number, Notification>();
  const blocks = new Map<number, Hash>();
  /** Matches whose notifications are not written yet, by the ids of their rows, with the records' addresses at that time. */
  const deferred = new Map<number, { block: number; hash: Hash; addresses: Map<string, Address> }>();

  /** Applies changed blocks: some are orphaned, some are new, and some reached their confirmations. */
  function followBlocks({ blocks: stored, notifications: rows, deferred: later }: StoredState): void {
    const hashes = new Map(stored.map(({ number, hash }) => [number, hash]));
    const orphaned = new Set<Notification>();
    for (const [number, hash] of blocks) {
      if (hashes.get(number) === hash) continue;
      blocks.delete(number);
      for (const one of notifications.values())
        if (one.block === number && !one.isOrphaned) orphaned.add(Object.assign(one, { isOrphaned: true }));
    }
    for (const one of orphaned)
      if (one.isDeleted) fail(`${nameOf(one)} was deleted before a reorg orphaned it`);
    if (orphaned.size > 0) noteSeen(orphaned, rows);
    for (const { number, hash, parent } of stored) {
      if (blocks.has(number)) continue;
      if (blocks.size > 0 && blocks.get(number - 1) !== parent)
        fail(`block ${number} is stored on another than its parent`);
      const isLeft = (id: string) =>
        later.some(({ block, records: ids }) => block === number && ids.includes(id));
      add(number, hash, { orphaned, isMeant: (id) => !isLeft(id) });
    }
    followDeferred(later);
    for (const one of orphaned) if (one.isOrphaned) undo(one);
    const unreleased = new Set(
      rows.flatMap((row) => (areSharesReleased && row.unreleased ? byId.get(row.id) : undefined) ?? []),
    );
    for (const one of notifications.values()) {
      if (!isReleased(one) || unreleased.has(one)) continue;
      one.releaseHeight = 0;
      if (one.turn === undefined) one.state = 'waiting';
    }
  }

  /** Whether it is held, and has its confirmations. */
  function isReleased({ state, releaseHeight }: Notification): boolean {
    return state === 'held' && releaseHeight <= Math.max(...blocks.keys());
  }

  /** Adds the notifications that were written since. Matches of orphaned blocks add none. */
  function followDeferred(later: StoredState['deferred']): void {
    const left = new Map(later.map(({ id, records: ids }) => [id, new Set(ids)]));
    for (const [id, { block, hash, addresses }] of deferred) {
      const written = new Map([...addresses].filter(([record]) => left.get(id)?.has(record) !== true));
      for (const record of written.keys()) addresses.delete(record);
      if (!left.has(id)) deferred.delete(id);
      if (written.size > 0 && blocks.get(block) === hash)
        add(block, hash, { orphaned: new Set(), isMeant: (one) => written.has(one), addresses: written });
    }
    for (const { id, block, records: ids } of later) {
      const hash = blocks.get(block);
      if (hash === undefined) fail(`of block ${block}, which is not stored, something is deferred`);
      else if (!deferred.has(id)) {
        const known = ids.flatMap((one) => records.get(one) ?? []);
        const addresses = new Map(known.map((record) => [record.id, record.address]));
        deferred.set(id, { block, hash, addresses });
      }
    }
  }

  /** Takes over which notifications the program counts as seen. It must count every one that was sent. */
  function noteSeen(orphaned: ReadonlySet<Notification>, rows: readonly StoredNotification[]): void {
    for (const { id, seen } of rows) {
      const one = byId.get(id);
      if (one === undefined || !orphaned.has(one)) continue;
      if (one.requests > 0 && !seen && !one.record.isGone)
        fail(`notification ${id} was sent, and does not count as seen`);
      one.mayBeSeen = seen;
    }
  }

  /** Adds a notification for each transfer and each watched address that matches. Known ones stay or are revived. */
  function add(
    number: number,
    hash: Hash,
    {
      orphaned,
      isMeant,
      addresses,
    }: {
      orphaned: ReadonlySet<Notification>;
      isMeant(recordId: string): boolean;
      /** The addresses that were watched, if they may have changed since. */
      addresses?: ReadonlyMap<string, Address>;
    },
  ): void {
    blocks.set(number, hash);
    if (chain.isLie(hash)) fail(`block ${number} is stored, which only the liar has`);
    const transfers = chain.find(hash)?.transactions.flatMap((transaction) => transaction.transfers) ?? [];
    const counts = new Map<string, number>();
    for (const [position, transfer] of transfers.entries()) {
      const occurrence = counts.get(contentOf(transfer)) ?? 0;
      counts.set(contentOf(transfer), occurrence + 1);
      for (const record of records.values()) {
        const key = keyOf(record.id, contentOf(transfer), occurrence);
        const orphan = notifications.get(key);
        // What is in both branches stays, whatever its watched address selects by now.
        const isKept = orphan !== undefined && orphaned.has(orphan) && !record.isGone;
        // So does what has ended, although its watched address is gone.
        if (orphan !== undefined && orphaned.has(orphan) && hasEndedGone(orphan))
          Object.assign(orphan, { isOrphaned: false, block: number });
        const isWatched = watches(record, transfer, addresses?.get(record.id)) && isMeant(record.id);
        if (!isKept && !isWatched) continue;
        const { settings } = record;
        const fresh = {
          ...{ transfer, block: number, state: 'held' as const },
          releaseHeight: number + Math.max(confirmations, settings.confirmations),
          turn: settings.strictOrder ? number * POSITIONS_PER_BLOCK + position : undefined,
        };
        const known = notifications.get(key);
        if (known !== undefined && !known.isDeleted)
          onReinclusion(known, fresh, { isSwitch: orphaned.has(known) });
        else {
          const untold = { isOrphaned: false, mayBeSeen: false, requests: 0, received: new Set<number>() };
          const version = { revision: 0, redelivery: 0, retries: 0, retryMs: undefined };
          const life = { createdMs: undefined, isDeleted: false };
          notifications.set(key, { record, ...fresh, ...untold, ...version, ...life });
        }
      }
    }
  }

  /** Under strict order, only the first notification of a watched address is due, unless a redelivery is under way. */
  function advanceSequences(): void {
    const open = Array.from(notifications.values()).filter((one) => one.turn !== undefined && isOpen(one));
    for (const own of Map.groupBy(open, ({ record }) => record).values()) {
      const isRedelivering = own.some(({ state, redelivery }) => state === 'waiting' && redelivery > 0);
      const [first] = own.sort((one, other) => (one.turn ?? 0) - (other.turn ?? 0));
      if (isRedelivering || first?.state !== 'held') continue;
      for (const one of own) one.state = one === first && one.releaseHeight === 0 ? 'waiting' : 'held';
    }
  }

  /** Cancels the open notifications of a deleted watched address at once. If the client died, workers do it when they are due. */
  function remove(record: SimRecord, { isFollowed }: { isFollowed: boolean }): void {
    record.isGone = true;
    if (!isFollowed) return;
    for (const one of notifications.values())
      if (one.record === record && isOpen(one)) one.state = 'cancelled';
  }

  /** A worker withdraws a removal notice when it reads that its watched address has turned `removed` off. */
  function noteGivenUp(stored: readonly StoredNotification[]): void {
    for (const { id, state } of stored) {
      const one = byId.get(id);
      const isUnwanted = one !== undefined && one.revision % 2 === 1 && !one.record.settings.removed;
      if (isUnwanted && isOpen(one) && state === 'withdrawn') one.state = 'withdrawn';
    }
  }

  /** Compares all rows. Retention may have deleted finished ones that were created before `keptFromMs`. */
  function compare(stored: readonly StoredNotification[], keptFromMs: number): void {
    noteGivenUp(stored);
    advanceSequences();
    const missing = new Set(notifications.keys());
    for (const row of stored) {
      const key = keyOf(row.record, contentOf(transferOf(row)), row.occurrence);
      const wanted = notifications.get(key);
      if (wanted === undefined) {
        fail(`notification ${row.id} should not be`);
        return;
      }
      if (!missing.delete(key)) fail(`notification ${row.id} is there twice`);
      if (wanted.isDeleted) fail(`notification ${row.id} is there again`);
      byId.set(row.id, wanted);
      wanted.createdMs ??= row.created_ms;
      if (wanted.createdMs !== row.created_ms) fail(`notification ${row.id} has another time of creation`);
      if (wanted.isResumed === true) {
        if (row.retry_ms === null) fail(`notification ${row.id} has no time for its retry`);
        Object.assign(wanted, { isResumed: false, retryMs: row.retry_ms });
      }
      // It became due after its watched address was deleted. The worker that reads it cancels it.
      if (row.state === 'cancelled' && isOpen(wanted) && wanted.record.isGone) wanted.state = 'cancelled';
      const [is, should] = [JSON.stringify(storedRow(row)), JSON.stringify(wantedRow(wanted))];
      if (is !== should) fail(`notification ${row.id} is ${is}, should be ${should}`);
    }
    for (const key of missing) noteDeleted(key, keptFromMs);
  }

  function noteDeleted(key: string, keptFromMs: number): void {
    const one = notifications.get(key);
    if (one === undefined || one.isDeleted) return;
    if (one.createdMs === undefined) fail(`there is no notification ${key}`);
    else if (isOpen(one)) fail(`${nameOf(one)} is deleted, and ${one.state}`);
    else if (one.createdMs >= keptFromMs) fail(`${nameOf(one)} is deleted too early`);
    else if (!isFinal(one)) fail(`${nameOf(one)} is deleted, and block ${one.block} is not final`);
    one.isDeleted = true;
  }

  /** Whether no reorg can change anything at the height of its block. */
  function isFinal({ block, isOrphaned }: Notification): boolean {
    const isCanonical = chain.at(chain.head(), block)?.header.hash === blocks.get(block);
    return block <= chain.finalNumber() && (isOrphaned || isCanonical);
  }

  /** A finished notification of a final block that was created before `keptFromMs` and is still there. */
  function findKept(keptFromMs: number, finalNumber: number): string | undefined {
    const kept = Array.from(byId.values())
      .filter((one) => !one.isDeleted && !isOpen(one) && one.block <= finalNumber)
      .find(({ createdMs }) => (createdMs ?? keptFromMs) < keptFromMs);
    return kept && nameOf(kept);
  }

  function nameOf(one: Notification): string {
    const [id] = Array.from(byId).find(([, known]) => known === one) ?? [];
    return `notification ${id}`;
  }

  /** The reason why the story is not finished. Held notifications don't count, because they lack confirmations. */
  function findUnfinished(): string | undefined {
    const { number, hash } = chain.head().header;
    if (blocks.get(number) !== hash) return `block ${number} is not stored`;
    if (deferred.size > 0) return `notifications of ${deferred.size} matches are not written`;
    const open = Array.from(byId).find(
      ([, one]) => one.state === 'waiting' || (one.releaseHeight > 0 && isReleased(one)),
    );
    return open && `notification ${open[0]} is still ${open[1].state}`;
  }

  /** At the end, receivers must have exactly the notifications of the canonical chain. */
  function judge(): void {
    const canonical = new Set<string>();
    for (const [number, hash] of blocks) {
      const block = chain.at(chain.head(), number);
      if (block?.header.hash !== hash) fail(`block ${number} is not of the chain`);
      for (const { transfers } of block?.transactions ?? [])
        for (const transfer of transfers) canonical.add(contentOf(transfer));
    }
    for (const [key, one] of notifications) {
      const { state, revision, received, transfer, record } = one;
      if (state === 'processed' && !received.has(revision)) fail(`no receiver got ${key}`);
      if (!one.isOrphaned && !canonical.has(contentOf(transfer))) fail(`${key} is on no block`);
      const isWatched = !record.isGone && !record.hasChanged && !one.isOrphaned;
      if (isWatched && (state === 'withdrawn' || revision % 2 === 1)) fail(`${key} is gone for ever`);
    }
  }

  return { records, notifications, byId, followBlocks, remove, compare, findUnfinished, findKept, judge };
}

const POSITIONS_PER_BLOCK = 1_000;
const keyOf = (...parts: [record: string, content: string, occurrence: number]) => parts.join(' ');
const contentOf = ({ txHash, kind, sender, receiver, token, amount }: Omit<Transfer, 'ordinal'>) =>
  [txHash, kind, sender, receiver, token, amount].join();
const transferOf = ({ hash, kind, sender, receiver, token, amount }: StoredNotification) => ({
  ...{ txHash: hash, kind: kind as Transfer['kind'], sender },
  ...{ receiver: receiver ?? undefined, token: token ?? undefined, amount: BigInt(amount) },
});
