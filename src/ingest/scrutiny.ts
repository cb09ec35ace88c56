/**
 * Which blocks are looked at in full before they are stored: all senders recovered, internal transfers confirmed by other
 * nodes. In the others only what matches a watched address is (vouch.ts).
 */
import { randomInt } from 'node:crypto';

export type Scrutiny = {
  /** How closely these blocks are to be looked at. */
  of(blocks: { from: number; to: number; head: number }): 'full' | undefined;
  /** A node lied about this block: it and those after it are looked at in full when they are read again. */
  suspect(number: number): void;
};

/** So close to the head a block's senders cost a worker little (7 ms for a mainnet block), every few seconds. */
const LIVE_BLOCKS = 10;
/**
 * One request of so many in a backfill, at random, so that a node can't tell which. With a transfer hidden in each of 500
 * requests, fewer than one backfill in 2,000 would notice none. To look at all blocks in full would cost the prover more than
 * twice the rest of its work.
 */
const SAMPLE_REQUESTS = 64;
/** After a lie. */
const SUSPECT_BLOCKS = 1_000;

export function createScrutiny(isSampled = () => randomInt(SAMPLE_REQUESTS) === 0): Scrutiny {
  let suspected = { from: 0, to: -1 };
  return {
    of({ from, to, head }) {
      const isLive = to > head - LIVE_BLOCKS;
      const isSuspect = to >= suspected.from && from <= suspected.to;
      return isLive || isSuspect || isSampled() ? 'full' : undefined;
    },
    suspect(number) {
      suspected = { from: number, to: number + SUSPECT_BLOCKS };
    },
  };
}
