/**
 * Which blocks are looked at in full before they are stored: all senders recovered, internal transfers confirmed by other
 * nodes. In the others what matches a watched address is (vouch.ts), and a sample of the senders. When a node is found to
 * lie, this says which of the stored blocks rest on its word.
 */
import { randomInt } from 'node:crypto';
import type { Lie } from '../chain/lie.ts';
import type { AgreementStatus, Outvoted } from '../chain/voting.ts';
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { ReadBlock } from './read-ahead.ts';

export type Scrutiny = {
  /** How closely these blocks are to be looked at. */
  of(blocks: { from: number; to: number; head: number }): 'full' | undefined;
  /** Notes who gave the blocks that are stored now. */
  stored(blocks: readonly Pick<ReadBlock, 'header' | 'believed'>[]): void;
  /**
   * A node lied about this block: it and those after it are looked at in full from now on, and what the node gave before is
   * reported as doubtful. Blocks that were stored before the start are in no report.
   */
  lied(lie: Lie): void;
  /** For each node that lied after it gave blocks that weren't looked at in full, between which they lie, and what to run. */
  doubts(): Outvoted[];
};

export type ScrutinyOptions = {
  clock: Clock;
  log: Log;
  /** Whether a request of a backfill is looked at in full, by chance. */
  isSampled?: () => boolean;
};

/** So close to the head a block's senders cost a worker little (7 ms for a mainnet block), every few seconds. */
const LIVE_BLOCKS = 10;
/**
 * One request of so many in a backfill, at random, so that a node can't tell which. With an internal transfer hidden in each
 * of 500 requests, fewer than one backfill in 2,000 would notice none. All would double the tracing.
 */
const SAMPLE_REQUESTS = 64;
/** After a lie. */
const SUSPECT_BLOCKS = 1_000;

type Range = { from: number; to: number };

export function createScrutiny({
  clock,
  log,
  isSampled = () => randomInt(SAMPLE_REQUESTS) === 0,
}: ScrutinyOptions): Scrutiny {
  let suspected: Range = { from: 0, to: -1 };
  /** By node, the blocks between which it gave some that weren't looked at in full: as many entries as nodes. */
  const believed = new Map<string, Range>();
  /** By node, its last lie. */
  const lies = new Map<string, { block: number; at: Date }>();

  /** What was under way when the lie was found is stored after it, and makes the range larger. */
  function report(node: string): void {
    const { block } = lies.get(node) ?? {};
    const range = believed.get(node);
    const doubt = range && { ...range, command: commandOf(range) };
    if (block !== undefined)
      log[doubt === undefined ? 'warn' : 'error']({ node, block, ...doubt }, 'node.lied');
  }

  return {
    of({ from, to, head }) {
      const isLive = to > head - LIVE_BLOCKS;
      const isSuspect = to >= suspected.from && from <= suspected.to;
      return isLive || isSuspect || isSampled() ? 'full' : undefined;
    },
    stored(blocks) {
      const grown = new Set<string>();
      for (const { believed: node, header } of blocks) {
        if (node === undefined) continue;
        const { from, to } = believed.get(node) ?? { from: header.number, to: header.number };
        believed.set(node, { from: Math.min(from, header.number), to: Math.max(to, header.number) });
        if (lies.has(node)) grown.add(node);
      }
      for (const node of grown) report(node);
    },
    lied({ node, block }) {
      suspected = { from: block, to: block + SUSPECT_BLOCKS };
      lies.set(node, { block, at: clock.now() });
      report(node);
    },
    doubts: () =>
      [...lies].flatMap(([node, { block, at }]) => {
        const range = believed.get(node);
        if (range === undefined) return [];
        const blocks = `blocks ${range.from} to ${range.to}, of which it gave some`;
        const message = `it lied about block ${block}, so ${blocks}, may lack transfers that it hid: run ${commandOf(range)}`;
        return [{ node, message, at }];
      }),
  };
}

const commandOf = ({ from, to }: Range) => `chainbell repair --from ${from} --to ${to} --dry-run`;

/** What nodes disagree about, with the doubts among the nodes that were outvoted. */
export const withDoubts = (agreement: AgreementStatus, doubts: readonly Outvoted[]): AgreementStatus => ({
  ...agreement,
  outvoted: [...agreement.outvoted, ...doubts],
});
