/**
 * The history of the demo's market before the demo begins: a month with a few blocks and a day with more, so that statistics
 * have something to compare with.
 */
import { marketTrafficAt } from './market-traffic.ts';
import type { Scene } from './scene.ts';
import { executeAll, type RpcEndpoint } from './wallet.ts';

const HOUR_MS = 3_600_000;
const DAY_HOURS = 24;
/** Far enough back to contain the same days of the previous month. */
const MONTH_HOURS = 35 * DAY_HOURS;
const MONTH_STEP_HOURS = 84;
const DAY_STEP_HOURS = 2;
/** Each block has a third of a round of the market's traffic. */
const TURNS_OF_BLOCK = 8;

/** The time of the genesis block for a demo that begins at this time. */
export function beginningOf(now: Date): Date {
  return new Date(now.getTime() - (MONTH_HOURS + 1) * HOUR_MS);
}

/** The times of the historical blocks, oldest first. The first block is for the scene, and the last one is now. */
export function listPast(now: Date): Date[] {
  const ago: number[] = [];
  for (let hours = MONTH_HOURS; hours > DAY_HOURS; hours -= MONTH_STEP_HOURS) ago.push(hours);
  for (let hours = DAY_HOURS; hours > 0; hours -= DAY_STEP_HOURS) ago.push(hours);
  return [...ago, 0].map((hours) => new Date(now.getTime() - hours * HOUR_MS));
}

/** Mines a block with market traffic at each of the times. */
export async function playPast(node: RpcEndpoint, scene: Scene, times: readonly Date[]): Promise<void> {
  let turn = 0;
  for (const time of times) {
    const turns = Array.from({ length: TURNS_OF_BLOCK }, () => turn++);
    const transactions = await Promise.all(turns.map((each) => marketTrafficAt(node, scene, each, time)));
    await executeAll(node, transactions, time);
  }
}
