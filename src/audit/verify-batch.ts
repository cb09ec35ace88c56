/**
 * Compares a batch of blocks with the database, and counts what a quorum of the nodes confirms.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import type { Voters } from '../chain/nodes/unhashed-data.ts';
import type { Clock } from '../core/clock.ts';
import { type Fault, messageOf } from '../core/fault.ts';
import type { ReadBlock } from '../ingest/read-block.ts';
import type { Database } from '../store/db/db.ts';
import type { Difference } from './compare.ts';
import { type CompareStored, notProved } from './compare-batch.ts';
import { ROWS_MAX } from './compare-records.ts';
import { relocate } from './relocate.ts';
import { isReorganising } from './reorg-wait.ts';
import type { Tally } from './verify-report.ts';
import type { WitnessPanel } from './witnesses.ts';

type BatchOptions = {
  database: Database;
  nodes: Pick<ChainNodes & Voters, 'head' | 'findHeader' | 'agree'>;
  clock: Clock;
  range: { from: number; to: number };
  finalizedNumber: number;
  compareStored: CompareStored;
  /** One block, outside of the order of the range; the Fault if no node gives it. */
  readBlock(number: number): Promise<readonly ReadBlock[] | Fault>;
  panel: WitnessPanel;
};

const tooMany = `it has ${ROWS_MAX} swaps, awards, wrong notifications, or notifications of one watched address`;

/** Ends early, as `reorganised`, when a reorg changes these blocks meanwhile. */
export async function verifyBatch(
  read: readonly ReadBlock[],
  options: BatchOptions,
  tally: Tally,
  signal: AbortSignal,
): Promise<'compared' | 'reorganised'> {
  if (read.length === 0) return 'compared';
  const compared = await options.compareStored(read);
  if (compared === 'too many') {
    const [only, ...others] = read;
    if (only !== undefined && others.length === 0)
      tally.countUncompared(only.header.number, 'too_many', tooMany);
    else
      for (const block of read)
        if ((await verifyBatch([block], options, tally, signal)) === 'reorganised') return 'reorganised';
    return 'compared';
  }
  const { astray, outcomes } = compared;
  const aboveFinal = astray.filter(({ header }) => header.number > options.finalizedNumber);
  if (await isReorganising(aboveFinal, options, signal)) return 'reorganised';
  const differences = outcomes.filter((outcome) => typeof outcome !== 'string');
  const confirmed = await options.panel.confirm(read, differences);
  if (confirmed === 'reorganised') return confirmed;
  if (confirmed === 'unconfirmed') {
    for (const _ of read) tally.count('unconfirmed');
    return 'compared';
  }
  tally.countCompared(compared);
  for (const outcome of outcomes) if (typeof outcome === 'string') tally.count(outcome);
  const places = { ...options, compareBlock: (number: number) => listDifferences(number, options) };
  for (const difference of confirmed) {
    const relocated = await relocate(difference, places, signal);
    if (relocated !== undefined) tally.count(relocated);
  }
  return 'compared';
}

/** The differences of one block; undefined if it can't be compared. */
async function listDifferences(
  number: number,
  { readBlock, compareStored }: Pick<BatchOptions, 'readBlock' | 'compareStored'>,
): Promise<readonly Difference[] | undefined> {
  const read = await readBlock(number);
  const compared = Array.isArray(read) && read.length > 0 ? await compareStored(read) : 'too many';
  return compared === 'too many' || compared.deferred > 0
    ? undefined
    : compared.outcomes.filter((outcome) => typeof outcome !== 'string');
}

/** Counts a block that no node gives. @throws Fault when no node answers at all. */
export async function countUnread(
  number: number,
  fault: Fault,
  { nodes, panel, hasWitnesses }: Pick<BatchOptions, 'nodes' | 'panel'> & { hasWitnesses: boolean },
  tally: Tally,
  signal: AbortSignal,
): Promise<void> {
  if (fault.code !== 'inconsistent') {
    await nodes.head(signal);
    return tally.countUncompared(number, 'not_served', messageOf(fault));
  }
  // The Fault may come from a node that lies, or from nodes that disagree about data that no hash covers. So ask each node.
  const confirmed = hasWitnesses
    ? await panel.askEach({ from: number, to: number })
    : [notProved(number, fault)];
  if (confirmed === 'unconfirmed') return tally.count('unconfirmed');
  for (const difference of confirmed) tally.count(difference);
}
