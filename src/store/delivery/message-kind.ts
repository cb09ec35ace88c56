/**
 * SQL for the current message of a notification `n`: its transfer or the removal notice for it (domain/message-kind.ts).
 */
import { sql } from '../db/sql.ts';

export const isTransferMessage = sql`n.revision % 2 = 0`;
export const isRemovalNotice = sql`n.revision % 2 = 1`;
/** The revision that sends the transfer: the current one, or the next one after a removal notice. */
export const transferRevision = sql`n.revision + n.revision % 2`;
/** Removal notices come before all transfers of their watched address. The newest transfer's notice is first. */
export const removalSequence = sql`-n.sequence`;
export const transferSequence = sql`abs(n.sequence)`;
