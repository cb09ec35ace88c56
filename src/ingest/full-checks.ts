/**
 * Decides which blocks are checked in full before they are stored: all senders recovered, internal transfers confirmed by
 * other nodes. In other blocks only transfers that match a watched address (prove-transfers.ts) and a sample of the senders are
 * checked. When a node lies, this module reports which stored blocks rely on that node alone.
 */
import { randomInt } from 'node:crypto';
import type { AgreementStatus, Outvoted } from '../chain/nodes/unhashed-data.ts';
import type { Lie } from '../chain/proof/false-answer.ts';
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { ReadBlock } from './read-ahead.ts';

export type Scrutiny = {
  /** This process begins to follow: what comes next may be a block at which another one, or this one before, held. */
  begin(): void;
  /** How closely to check these blocks. */
  of(blocks: { from: number; to: number; head: number }): 'full' | undefined;
  /** Notes which nodes gave the blocks that are stored now. */
  stored(blocks: readonly Pick<ReadBlock, 'header' | 'believed'>[]): void;
  /**
   * A node lied about this block: from now on this block and those after it are checked in full, and blocks that the node
   * gave before are reported as doubtful. Reports leave out blocks that were stored before the start.
   */
  lied(lie: Lie): void;
  /** Nodes disagree about this block: it is checked in full until it is stored, however far the head moves on. */
  disputed(block: number): void;
  /**
   * For each node that lied after it gave blocks that weren't checked in full: the range of these blocks, and the command.
   */
  doubts(): Outvoted[];
};

type ScrutinyOptions = {
  clock: Clock;
  log: Log;
  /** Whether a request of a backfill is looked at in full, by chance. */
  isSampled?: () => boolean;
};

/** This close to the head, a block's senders cost a worker little (7 ms for a mainnet block), every few seconds. */
const LIVE_BLOCKS = 10;
/**
 * One request in this many in a backfill, at random, so that a node can't predict which. If a node hides an internal
 * transfer in each of 500 requests, fewer than one backfill in 2,000 misses all of them. Checking every request would
 * double the tracing.
 */
const SAMPLE_REQUESTS = 64;
/** After a lie. */
const SUSPECT_BLOCKS = 1_000;
/** If no block could be stored for so long after `begin`, nodes may lack the traces that a full check needs. */
const BEGIN_MS_MAX = 60_000;

type Range = { from: number; to: number };
const none: Range = { from: Number.POSITIVE_INFINITY, to: Number.NEGATIVE_INFINITY };
const including = ({ from, to }: Range, block: number): Range => ({
  from: Math.min(from, block),
  to: Math.max(to, block),
});

export function createScrutiny({
  clock,
  log,
  isSampled = () => randomInt(SAMPLE_REQUESTS) === 0,
}: ScrutinyOptions): Scrutiny {
  let suspected = none;
  let disputed = none;
  /** Until a block is stored, and no longer than this, all are checked in full. */
  let beginsUntilMs = Number.NEGATIVE_INFINITY;
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
    begin() {
      beginsUntilMs = clock.steadyMs() + BEGIN_MS_MAX;
    },
    of({ from, to, head }) {
      const isLive = to > head - LIVE_BLOCKS;
      const isSuspect = [suspected, disputed].some((range) => to >= range.from && from <= range.to);
      const isBeginning = clock.steadyMs() < beginsUntilMs;
      return isLive || isSuspect || isBeginning || isSampled() ? 'full' : undefined;
    },
    stored(blocks) {
      beginsUntilMs = Number.NEGATIVE_INFINITY;
      if (blocks.some(({ header }) => header.number >= disputed.to)) disputed = none;
      const grown = new Set<string>();
      for (const { believed: node, header } of blocks) {
        if (node === undefined) continue;
        believed.set(node, including(believed.get(node) ?? none, header.number));
        if (lies.has(node)) grown.add(node);
      }
      for (const node of grown) report(node);
    },
    lied({ node, block }) {
      suspected = { from: block, to: block + SUSPECT_BLOCKS };
      lies.set(node, { block, at: clock.now() });
      report(node);
    },
    disputed(block) {
      disputed = including(disputed, block);
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
