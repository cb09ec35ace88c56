/**
 * What a notification `n` sends now, in SQL: its transfer, or the removal notice for it (domain/message-kind.ts).
 */
import { sql } from '../db/sql.ts';

export const isTransferMessage = sql`n.revision % 2 = 0`;
export const isRemovalNotice = sql`n.revision % 2 = 1`;
/** Of the transfer again: the present one, or after a removal notice the next one. */
export const transferRevision = sql`n.revision + n.revision % 2`;
/** Removal notices come before all transfers of their record, the newest transfer's first. */
export const removalSequence = sql`-n.sequence`;
export const transferSequence = sql`abs(n.sequence)`;
