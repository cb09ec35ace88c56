/**
 * Short functions for tests of the store: blocks of a branch, transfers in them, and watched addresses.
 */
import { randomUUID } from 'node:crypto';
import type { Address, Hash } from '../../src/core/hex.ts';
import type { BlockHeader, Transfer } from '../../src/domain/block.ts';
import { webhookOrigin } from '../../src/domain/webhook-url.ts';
import { type BlockCommit, type Committed, commitBlocks, findTip } from '../../src/store/blocks/blocks.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { defaultSettings, replaceSettings, type WatchSettings } from '../../src/store/watchers/settings.ts';
import { insertWatchedAddress, type WatchedAddress } from '../../src/store/watchers/watched.ts';

/** The present time in these tests. */
export const noon = new Date('2025-11-20T12:00:00.000Z');
export const later = (ms: number): Date => new Date(noon.getTime() + ms);

export const alice = addressOf(0xa11ce);
export const bob = addressOf(0xb0b);
export const carol = addressOf(0xca201);
export const coin = addressOf(0xc0141);

export function addressOf(number: number): Address {
  return `0x${number.toString(16).padStart(40, '0')}`;
}

export function hashOf(number: number): Hash {
  return `0x${number.toString(16).padStart(64, '0')}`;
}

/** The header at a height on branch 0, 1, …. Branches have different headers above `leavesAt`. */
export function headerOf(number: number, branch = 0, leavesAt = 0): BlockHeader {
  const hashAt = (height: number) => hashOf(height * 16 + (height > leavesAt ? branch : 0) + 0x1000_0000);
  return { number, hash: hashAt(number), parentHash: hashAt(number - 1), minedAt: later(number * 1000) };
}

let transferCount = 0;

/** A payment of one wei from alice to bob in a separate transaction; `parts` overrides fields. */
export function transferOf(parts: Partial<Transfer> = {}): Transfer {
  transferCount += 1;
  const none = {
    kind: 'transaction',
    ordinal: 0,
    sender: alice,
    receiver: bob,
    amount: 1n,
    token: undefined,
  } as const;
  return { ...none, txHash: hashOf(0x7000_0000 + transferCount), ...parts };
}

export type Watch = {
  watcherId?: number;
  address?: Address;
  url?: string;
  watchCoin?: boolean;
  watchToken?: boolean;
  settings?: Partial<WatchSettings>;
};

/** Adds watchers with these ids unless they exist. */
export async function addWatchers(database: Database, ...ids: readonly number[]): Promise<void> {
  for (const id of ids)
    await database.query(sql`
      insert into watcher (id, name, created_at) overriding system value
      values (${id}, ${`watcher ${id}`}, ${noon}) on conflict do nothing`);
}

/** Watches bob for watcher 1; `watch` overrides fields. */
export async function watchAddress(database: Database, watch: Watch = {}): Promise<WatchedAddress> {
  const {
    watcherId = 1,
    address = bob,
    url = 'https://one.example/hook',
    watchCoin = true,
    watchToken = true,
    settings,
  } = watch;
  await addWatchers(database, watcherId);
  const record = { id: randomUUID(), address, watchCoin, watchToken, webhookUrl: url };
  const at = { origin: webhookOrigin(url), now: noon };
  const inserted = await database.transaction((tx) => insertWatchedAddress(tx, watcherId, record, at));
  if (settings !== undefined) {
    const change = { settings: { ...defaultSettings, ...settings }, now: noon };
    await replaceSettings(database, watcherId, inserted.id, change);
  }
  return inserted;
}

/** Commits one block on the stored tip. Its notifications are released at once by default. */
export async function mine(
  database: Database,
  header: BlockHeader,
  transfers: readonly Transfer[],
  parts: Partial<Omit<BlockCommit, 'blocks'>> = {},
): Promise<Committed> {
  return commitBlocks(database, {
    expectedTip: await findTip(database),
    blocks: [{ header, proved: true, transfers }],
    confirmations: 0,
    finalizedNumber: 0,
    now: noon,
    ...parts,
  });
}

/** For `mine`: writes all notifications in the block's transaction, however many there are. */
export const atOnce = {
  deferral: {
    recordsMin: 1_000_000,
    ownRowsMax: 1_000_000,
    allRowsMax: 1_000_000,
    rowsAtOnce: 1_000_000,
    rowsMax: 1,
  },
} as const;

export type NotificationRow = {
  id: number;
  shard_id: number;
  watcher_id: number;
  lane_id: number;
  watched_address_id: string;
  state: string;
  kind: string;
  tx_hash: string;
  amount: string;
  block_number: number;
  revision: number;
  retry_count: number;
  next_retry_at: Date | null;
  next_attempt_at: Date;
  processed_at: Date | null;
};

/** All notifications in the order of their creation. */
export function listNotifications(database: Database): Promise<NotificationRow[]> {
  return database.query<NotificationRow>(sql`
    select id, shard_id, watcher_id, lane_id, watched_address_id, state, kind, '0x' || encode(tx_hash, 'hex') as tx_hash, amount, block_number, revision, retry_count,
      next_retry_at, next_attempt_at, processed_at
    from notification_status order by id`);
}

/** Only the states, which is enough for most tests. */
export async function listStates(database: Database): Promise<string[]> {
  return (await listNotifications(database)).map(({ state }) => state);
}

export type LaneRow = {
  id: number;
  owner: number | null;
  epoch: number;
  next_due: Date | null;
  lease_until: Date | null;
};

export function listLanes(database: Database): Promise<LaneRow[]> {
  return database.query<LaneRow>(sql`select id, owner, epoch, next_due, lease_until from lane order by id`);
}
