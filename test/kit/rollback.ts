/**
 * Rolls back stored blocks without storing replacements, for tests of the time between the two.
 */
import type { BlockId } from '../../src/domain/block.ts';
import { commitBlocks } from '../../src/store/blocks/blocks.ts';
import type { Database, Tx } from '../../src/store/db/db.ts';

/** Removes every block above the ancestor. Returns how many were removed, or 'lost' as in commitBlocks. */
export async function rollbackTo(
  database: Database,
  {
    ancestorNumber,
    expectedTip,
    now,
    also: undo,
  }: { ancestorNumber: number; expectedTip: BlockId; now: Date; also?(tx: Tx): Promise<void> },
): Promise<number | 'lost'> {
  const reorg = { ancestorNumber, ...(undo !== undefined && { undo }) };
  const nothing = { blocks: [], confirmations: 0, finalizedNumber: 0 };
  const committed = await commitBlocks(database, { expectedTip, reorg, ...nothing, now });
  return committed.outcome === 'committed' ? committed.orphanedCount : 'lost';
}
