/**
 * The optional settings of a watched address. A change applies to blocks stored after it; a change of `removed`, to later
 * reorgs.
 */
import type { Address } from '../../core/hex.ts';
import { shardOfRecord } from '../../domain/shard.ts';
import type { Database, Db } from '../db/db.ts';
import { requirePresent } from '../db/lost-shards.ts';
import { type Sql, sql } from '../db/sql.ts';
import { updateTimeIf } from '../db/time-sum.ts';
import { type ChangeTime, timeOf } from './watched.ts';

export type WatchSettings = {
  /** Confirmations to wait for before sending. The service's own setting applies if it is higher. */
  confirmations: number;
  /** The side of a transfer on which the watched address must be. */
  direction: 'in' | 'out' | 'both';
  /** The smallest amount of native coin that is sent, in wei. */
  minAmount: bigint;
  /** The tokens that are sent, each with its smallest raw amount. Empty: every token with any amount. */
  tokens: ReadonlyMap<Address, bigint>;
  /** Whether removal notices are sent for transfers that a reorg orphaned. */
  removed: boolean;
  /** Whether notifications are attempted one at a time, in the order of the chain. */
  strictOrder: boolean;
};

/** The upper limit of `chain.confirmations` also applies to a watched address. */
export const CONFIRMATIONS_MAX = 100_000;

/** The behavior of the specification. */
export const defaultSettings: WatchSettings = {
  confirmations: 0,
  direction: 'both',
  minAmount: 0n,
  tokens: new Map(),
  removed: false,
  strictOrder: false,
};

export async function findSettings(
  db: Db,
  watcherId: number,
  id: string,
): Promise<WatchSettings | undefined> {
  const [row] = await db.query<SettingsRow>(sql`
    select ${settingsColumns} from watched_address w where ${isRecord(watcherId, id)}`);
  return row && toSettings(row);
}

/** Replaces all settings. Undefined if the watched address does not exist. @throws Fault `unavailable` if its shard is lost. */
export async function replaceSettings(
  database: Database,
  watcherId: number,
  id: string,
  { settings, now }: { settings: WatchSettings; now: ChangeTime },
): Promise<WatchSettings | undefined> {
  await requirePresent(database, shardOfRecord(watcherId, id));
  const { confirmations, direction, minAmount, tokens, removed, strictOrder } = settings;
  const amounts = Array.from(tokens, ([token, amount]) => [token.slice(2), String(amount)]);
  const wanted = {
    confirmations: sql`nullif(${confirmations}::integer, 0)`,
    direction: sql`nullif(${direction}::text, 'both')`,
    minAmount: sql`nullif(${String(minAmount)}::text, '0')::numeric`,
    tokens: sql`nullif(${JSON.stringify(Object.fromEntries(amounts))}::text, '{}')::jsonb`,
    removed: sql`${removed}::boolean`,
    strictOrder: sql`${strictOrder}::boolean`,
  };
  const isChange = sql`(${settingsColumns}) is distinct from (${wanted.confirmations}, ${wanted.direction}, ${wanted.minAmount},
    ${wanted.tokens}, ${wanted.removed}, ${wanted.strictOrder})`;
  const [row] = await database.transaction(async (tx) => {
    await tx.query(sql`select from watched_address w where ${isRecord(watcherId, id)} for update`);
    return tx.query<SettingsRow>(sql`
      update watched_address w set
        confirmations = ${wanted.confirmations},
        direction = ${wanted.direction},
        min_amount = ${wanted.minAmount},
        tokens = ${wanted.tokens},
        removed = ${wanted.removed},
        strict_order = ${wanted.strictOrder},
        updated_at = ${updateTimeIf(isChange, sql`w.updated_at`, timeOf(now))}
      where ${isRecord(watcherId, id)}
      returning ${settingsColumns}`);
  });
  return row && toSettings(row);
}

const isRecord = (watcherId: number, id: string): Sql =>
  sql`w.shard_id = ${shardOfRecord(watcherId, id)} and w.watcher_id = ${watcherId} and w.id = ${id}`;

/** The settings' columns of a watched address `w`. */
export const settingsColumns: Sql = sql`w.confirmations, w.direction, w.min_amount, w.tokens, w.removed, w.strict_order`;

export type SettingsRow = {
  confirmations: number | null;
  direction: 'in' | 'out' | null;
  min_amount: string | null;
  tokens: Record<string, string> | null;
  removed: boolean;
  strict_order: boolean;
};

export function toSettings(row: SettingsRow): WatchSettings {
  return {
    confirmations: row.confirmations ?? 0,
    direction: row.direction ?? 'both',
    minAmount: BigInt(row.min_amount ?? 0),
    tokens: new Map(
      Object.entries(row.tokens ?? {}).map(([digits, amount]) => [`0x${digits}`, BigInt(amount)]),
    ),
    removed: row.removed,
    strictOrder: row.strict_order,
  };
}
