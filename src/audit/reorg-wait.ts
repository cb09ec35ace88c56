/**
 * Tells a reorg that the follower is about to handle from a difference: the first is over after a few seconds.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import type { Clock } from '../core/clock.ts';
import { listStoredBlocks } from '../store/audit/comparison.ts';
import type { Database } from '../store/db/db.ts';
import type { Astray } from './compare-batch.ts';

/** By then a follower has seen the reorg and orphaned the old branch, because it reads the head at least every 2 s. */
const SETTLE_MS = 5_000;

type Waiting = { database: Database; clock: Clock };

/** Waits, and returns whether the stored blocks or the chain's blocks have changed meanwhile. */
export async function isReorganising(
  astray: readonly Astray[],
  { database, clock, nodes }: Waiting & { nodes: Pick<ChainNodes, 'findHeader'> },
  signal: AbortSignal,
): Promise<boolean> {
  const [first] = astray;
  if (first === undefined) return false;
  await clock.wait(SETTLE_MS, signal);
  const span = { from: first.header.number, to: astray.at(-1)?.header.number ?? first.header.number };
  const stored = await listStoredBlocks(database, span);
  for (const { header, storedHash } of astray) {
    if (stored.get(header.number)?.hash !== storedHash) return true;
    if ((await nodes.findHeader(header.number, signal))?.hash !== header.hash) return true;
  }
  return false;
}

/** Waits, and returns whether the stored block at this height has changed meanwhile. */
export async function isReplaced(
  number: number,
  { database, clock }: Waiting,
  signal: AbortSignal,
): Promise<boolean> {
  const readHash = async () =>
    (await listStoredBlocks(database, { from: number, to: number })).get(number)?.hash;
  const before = await readHash();
  await clock.wait(SETTLE_MS, signal);
  return (await readHash()) !== before;
}
