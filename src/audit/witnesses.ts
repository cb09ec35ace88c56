/**
 * Asks each configured node separately about a difference, so that one node that lies or lags can't decide alone.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { BlockHeader } from '../domain/block.ts';
import { type QuorumSetting, quorumOf } from '../domain/quorum.ts';
import { createReadAhead } from '../ingest/read-ahead.ts';
import type { Extract, ReadBlock } from '../ingest/read-block.ts';
import type { Database } from '../store/db/db.ts';
import type { Difference } from './compare.ts';
import { type CompareStored, notProved } from './compare-batch.ts';
import { isReplaced } from './reorg-wait.ts';
import { agreeOn, type Opinion } from './second-opinion.ts';
import type { Tally } from './verify-report.ts';

export type Witness = { name: string; nodes: Pick<ChainNodes, 'bundles' | 'findHeader'> };

type WitnessOptions = {
  database: Database;
  clock: Clock;
  extract: Extract;
  witnesses: readonly Witness[];
  quorum: QuorumSetting;
  finalizedNumber: number;
  compareStored: CompareStored;
};

type BlockRange = { from: number; to: number };

export type WitnessPanel = {
  /**
   * Of the differences that one node's blocks show, those that a quorum of the nodes confirms; `unconfirmed` when too few
   * nodes give the blocks. With a single node, all differences.
   */
  confirm(
    read: readonly ReadBlock[],
    differences: readonly Difference[],
  ): Promise<readonly Difference[] | 'reorganised' | 'unconfirmed'>;
  /** The differences of these blocks that a quorum of the nodes confirms, or `unconfirmed`. */
  askEach(range: BlockRange): Promise<readonly Difference[] | 'unconfirmed'>;
};

/** Counts nodes that do not answer, and nodes that contradict the others. */
export function createWitnessPanel(options: WitnessOptions, tally: Tally, signal: AbortSignal): WitnessPanel {
  const { witnesses, quorum, finalizedNumber } = options;

  async function askEach(range: BlockRange): Promise<readonly Difference[] | 'unconfirmed'> {
    const opinions: Opinion[] = [];
    for (const witness of witnesses) opinions.push(await askWitness(witness, range, options, signal));
    for (const { node, problem } of opinions) if (problem !== undefined) tally.noteUnanswered(node, problem);
    const agreed = agreeOn(opinions, quorum);
    if (!agreed.isQuorate) return 'unconfirmed';
    for (const _ of agreed.unconfirmed) tally.count('unconfirmed');
    for (const dissent of agreed.dissents) tally.countDissent(dissent);
    return agreed.differences;
  }

  /** Near the head, nodes differ for a moment, and the follower may be about to handle a reorg. Then it looks twice. */
  async function judgeAnchor(last: BlockHeader): Promise<'anchored' | 'disputed' | 'reorganised'> {
    if (await isAnchored(last)) return 'anchored';
    if (last.number <= finalizedNumber) return 'disputed';
    if (await isReplaced(last.number, options, signal)) return 'reorganised';
    return (await isAnchored(last)) ? 'anchored' : 'disputed';
  }

  /**
   * Whether a quorum has this block. If so, it has all blocks below too, because parent hashes link them, and nodes with
   * another block dissent.
   */
  async function isAnchored({ number, hash }: BlockHeader): Promise<boolean> {
    const headers = await Promise.all(
      witnesses.map(({ nodes }) => unlessFault(() => nodes.findHeader(number, signal))),
    );
    const votes = headers.filter((header) => header?.hash === hash).length;
    if (votes < quorumOf(witnesses.length, quorum)) return false;
    for (const [index, { name: node }] of witnesses.entries()) {
      const other = headers[index]?.hash;
      if (other === undefined || other === hash) continue;
      const message = `block ${number} is ${other} at this node, and ${hash} at the others`;
      tally.countDissent({ node, block: number, message });
    }
    return true;
  }

  async function unlessFault<T>(work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof Fault) || signal.aborted) throw error;
      return undefined;
    }
  }

  return {
    askEach,
    async confirm(read, differences) {
      const [first, last] = [read[0]?.header, read.at(-1)?.header];
      if (witnesses.length < 2 || first === undefined || last === undefined) return differences;
      const anchor = await judgeAnchor(last);
      if (anchor === 'reorganised') return anchor;
      if (differences.length === 0 && anchor === 'anchored') return [];
      return askEach({ from: first.number, to: last.number });
    },
  };
}

/** The differences of the blocks that this node gives, or why it gives none. */
async function askWitness(
  { name, nodes }: Witness,
  { from, to }: BlockRange,
  { clock, extract, compareStored }: Pick<WitnessOptions, 'clock' | 'extract' | 'compareStored'>,
  signal: AbortSignal,
): Promise<Opinion> {
  const blocks: ReadBlock[] = [];
  const readAhead = createReadAhead({ nodes, clock, extract, scrutinyOf: () => 'full' });
  try {
    for (let next = from; next <= to; next = from + blocks.length)
      blocks.push(...(await readAhead.next(next, { number: to, hash: undefined }, signal)));
  } catch (error) {
    if (!(error instanceof Fault) || signal.aborted) throw error;
    if (error.code === 'inconsistent' && from === to)
      return { node: name, differences: [notProved(from, error)] };
    return { node: name, differences: undefined, problem: messageOf(error) };
  }
  const compared = await compareStored(blocks);
  if (compared === 'too many') {
    const problem = 'its blocks have too much data to compare at once';
    return { node: name, differences: undefined, problem };
  }
  return { node: name, differences: compared.outcomes.filter((outcome) => typeof outcome !== 'string') };
}
