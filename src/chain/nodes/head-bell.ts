/**
 * Limits how often the pushes of one node may have the other nodes asked. Each round asks all nodes, up to five times, so a node
 * that pushes made-up heads without pause could otherwise flood the others.
 */
import type { Clock } from '../../core/clock.ts';
import { createAllowance } from './allowance.ts';

type BellOptions = {
  clock: Clock;
  signal: AbortSignal;
  /** The number of the head that the nodes agreed on last. Undefined before the first one. */
  headNumber(): number | undefined;
  onRing(): void;
};

/** Enough for the pushes during a reorg, and for nodes that the others follow a few blocks later. */
const RINGS_MAX = 5;
/** As often as the nodes are polled while heads are pushed. */
const RING_MS = 2_000;

/**
 * The returned function rings at once if it may: five times, and once more for each new head of the chain and every two seconds.
 * Otherwise it rings as soon as it may again.
 */
export function createHeadBell({ clock, signal, headNumber, onRing }: BellOptions): () => void {
  const rings = createAllowance(clock, { max: RINGS_MAX, perSecond: 1_000 / RING_MS });
  /** The greatest head for which a ring was given. */
  let highest = 0;
  let isHeld = false;
  let isWaiting = false;

  async function ringLater(): Promise<void> {
    isWaiting = true;
    await clock.wait(RING_MS, signal);
    isWaiting = false;
    if (isHeld && !signal.aborted) ring();
  }

  function ring(): void {
    const number = headNumber() ?? 0;
    rings.give(Math.max(0, number - highest));
    highest = Math.max(highest, number);
    isHeld = !rings.take(1);
    if (!isHeld) onRing();
    else if (!isWaiting) void ringLater();
  }

  return ring;
}
