/**
 * Decides which blocks are checked in full before they are stored: all senders recovered, internal transfers confirmed by
 * other nodes. In other blocks only transfers that match a watched address (prove-transfers.ts) and a sample of the senders are
 * checked. When a node lies, this module reports which stored blocks rely on that node alone.
 */
import { randomInt } from 'node:crypto';
import type { OutvotedAnswer } from '../chain/nodes/poll-report.ts';
import type { AgreementStatus } from '../chain/nodes/unhashed-data.ts';
import { DisputeFault, type Lie } from '../chain/proof/false-answer.ts';
import type { Clock } from '../core/clock.ts';
import type { Fault } from '../core/fault.ts';
import type { Log } from '../core/log.ts';
import type { ReadBlock } from './read-block.ts';

export type FullChecks = {
  /**
   * Call when this process begins to follow, because the next block may be one at which the process that followed before held, and when it
   * begins to switch to another branch.
   */
  begin(): void;
  /** How closely to check these blocks. */
  scrutinyOf(blocks: { from: number; to: number; head: number }): 'full' | undefined;
  /** Remembers which nodes gave these blocks, which have just been stored. */
  stored(blocks: readonly Pick<ReadBlock, 'header' | 'believed'>[]): void;
  /**
   * A node lied about this block: from now on this block and those after it are checked in full, and blocks that the node
   * gave before are reported as doubtful. Reports leave out blocks that were stored before the start.
   */
  lied(lie: Lie): void;
  /**
   * A full check of this block failed. If nodes disagree about it or it is near the head, it is checked in full until it is
   * stored, however far the head moves on. A backfill goes on, because many nodes can't trace old blocks.
   */
  unconfirmed(block: number, fault: Fault): void;
  /**
   * For each node that lied after it gave blocks that weren't checked in full: the range of these blocks, and the command.
   */
  doubts(): OutvotedAnswer[];
};

type FullChecksOptions = {
  clock: Clock;
  log: Log;
  /** Counts a lie among the answers of its node that a proof contradicted. */
  onLie?(lie: Lie): void;
  /** Decides at random whether to check a backfill request in full. */
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
/** Number of blocks that are checked in full after a lie. */
const SUSPECT_BLOCKS = 1_000;
/** If no block could be stored for this long after `begin`, the nodes may lack the traces that a full check needs. */
const BEGIN_MS_MAX = 60_000;

type Range = { from: number; to: number };
const none: Range = { from: Number.POSITIVE_INFINITY, to: Number.NEGATIVE_INFINITY };
const including = ({ from, to }: Range, block: number): Range => ({
  from: Math.min(from, block),
  to: Math.max(to, block),
});

export function createFullChecks({
  clock,
  log,
  onLie,
  isSampled = () => randomInt(SAMPLE_REQUESTS) === 0,
}: FullChecksOptions): FullChecks {
  let suspected = none;
  let unconfirmed = none;
  /** Blocks above it are near the head. */
  let oldNumber = Number.POSITIVE_INFINITY;
  /** All blocks are checked in full until one is stored, or until this time. */
  let beginsUntilMs = Number.NEGATIVE_INFINITY;
  /** For each node, the range of blocks in which it gave some that weren't checked in full. One entry per node. */
  const believed = new Map<string, Range>();
  /** The last lie of each node. */
  const lies = new Map<string, { block: number; at: Date }>();

  /** Reports again when the range grows, because requests that were under way at the lie are stored after it. */
  function report(node: string): void {
    const { block } = lies.get(node) ?? {};
    const range = believed.get(node);
    const doubt = range && { ...range, command: commandOf(range) };
    if (block !== undefined)
      log[doubt === undefined ? 'warn' : 'error']({ node, block, ...doubt }, 'node.gave_false_answer');
  }

  return {
    begin() {
      beginsUntilMs = clock.steadyMs() + BEGIN_MS_MAX;
    },
    scrutinyOf({ from, to, head }) {
      oldNumber = head - LIVE_BLOCKS;
      const isLive = to > oldNumber;
      const isSuspect = [suspected, unconfirmed].some((range) => to >= range.from && from <= range.to);
      const isBeginning = clock.steadyMs() < beginsUntilMs;
      return isLive || isSuspect || isBeginning || isSampled() ? 'full' : undefined;
    },
    stored(blocks) {
      beginsUntilMs = Number.NEGATIVE_INFINITY;
      if (blocks.some(({ header }) => header.number >= unconfirmed.to)) unconfirmed = none;
      const grown = new Set<string>();
      for (const { believed: node, header } of blocks) {
        if (node === undefined) continue;
        believed.set(node, including(believed.get(node) ?? none, header.number));
        if (lies.has(node)) grown.add(node);
      }
      for (const node of grown) report(node);
    },
    lied(lie) {
      const { node, block } = lie;
      onLie?.(lie);
      suspected = { from: block, to: block + SUSPECT_BLOCKS };
      lies.set(node, { block, at: clock.now() });
      report(node);
    },
    unconfirmed(block, fault) {
      if (fault instanceof DisputeFault || block > oldNumber) unconfirmed = including(unconfirmed, block);
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

/** Adds the doubts to the outvoted nodes in `/status`. */
export const withDoubts = (
  agreement: AgreementStatus,
  doubts: readonly OutvotedAnswer[],
): AgreementStatus => ({
  ...agreement,
  outvoted: [...agreement.outvoted, ...doubts],
});
