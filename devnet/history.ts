/**
 * What happened on the demo's market before the demo began: a month of a few blocks, and a day of more, so that there is
 * something to compare with.
 */
import { marketTrafficAt } from './market-traffic.ts';
import type { Scene } from './scene.ts';
import { executeAll, type Node } from './wallet.ts';

const HOUR_MS = 3_600_000;
const DAY_HOURS = 24;
/** Far enough back for the same days of the month before. */
const MONTH_HOURS = 35 * DAY_HOURS;
const MONTH_STEP_HOURS = 84;
const DAY_STEP_HOURS = 2;
/** A third of a round of the market's traffic in each block. */
const TURNS_OF_BLOCK = 8;

/** When the chain begins for a demo that begins at this time. */
export function beginningOf(now: Date): Date {
  return new Date(now.getTime() - (MONTH_HOURS + 1) * HOUR_MS);
}

/** The times of the blocks of the past, oldest first; the first one is for the scene, the last one is now. */
export function listPast(now: Date): Date[] {
  const ago: number[] = [];
  for (let hours = MONTH_HOURS; hours > DAY_HOURS; hours -= MONTH_STEP_HOURS) ago.push(hours);
  for (let hours = DAY_HOURS; hours > 0; hours -= DAY_STEP_HOURS) ago.push(hours);
  return [...ago, 0].map((hours) => new Date(now.getTime() - hours * HOUR_MS));
}

/** Mines a block with traffic of the market at each of the times. */
export async function playPast(node: Node, scene: Scene, times: readonly Date[]): Promise<void> {
  let turn = 0;
  for (const time of times) {
    const turns = Array.from({ length: TURNS_OF_BLOCK }, () => turn++);
    const transactions = await Promise.all(turns.map((each) => marketTrafficAt(node, scene, each, time)));
    await executeAll(node, transactions, time);
  }
}
