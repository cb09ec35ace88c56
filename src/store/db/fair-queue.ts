/**
 * Turns on the one connection of the embedded database, fair between the parts of the process by the time that each used
 * (start-time fair queueing): however much one part asks for, another one waits for the turn under way and little more.
 */
import { setImmediate as breathe } from 'node:timers/promises';
import { Fault } from '../../core/fault.ts';
import { type Share, shares } from './db.ts';

export type FairQueue = {
  /** Runs `work` in a turn of the share, first come first served within it. @throws Fault `unavailable` when too many wait. */
  run<T>(share: Share, work: () => Promise<T>): Promise<T>;
  /** Resolves when nothing is under way and nothing waits. */
  idle(): Promise<void>;
};

/**
 * What may wait, per share. The API: more requests than that would be late by seconds. Delivery: all lanes that a process may
 * have leased read at once. The others have a handful of loops or commands.
 */
const WAITING_MAX: Record<Share, number> = {
  ...{ follower: 100, settle: 100, delivery: 5_000, api: 1_000, operator: 100 },
};
/** Each millisecond of an operator's turn counts as much as so many of another part's: the service's own work goes first. */
const OPERATOR_COST = 4;
/** The embedded database works in this thread: without a pause a long line would keep out requests, timers and signals. */
const BREATH_MS = 10;
/** A turn has its own cost beside what can be measured; without a floor, turns too short to measure would be free. */
const TURN_MS_MIN = 0.05;

type Line = {
  waiting: (() => Promise<void>)[];
  cost: number;
  /** Virtual time: what the share used, moved up to the others' when it comes back after a rest. */
  usedMs: number;
};

export function createFairQueue(steadyMs: () => number): FairQueue {
  const lines = new Map<Share, Line>(
    shares.map((share) => [
      share,
      { waiting: [], cost: share === 'operator' ? OPERATOR_COST : 1, usedMs: 0 },
    ]),
  );
  /** The virtual time of the turn that began last. */
  let presentMs = 0;
  let running: Promise<void> | undefined;

  /** Of the lines with something waiting, the one that used least. */
  const next = () =>
    Array.from(lines.values())
      .filter(({ waiting }) => waiting.length > 0)
      .reduce<Line | undefined>(
        (least, line) => (least === undefined || line.usedMs < least.usedMs ? line : least),
        undefined,
      );

  async function takeTurns(): Promise<void> {
    let breathMs = steadyMs();
    for (let line = next(); line !== undefined; line = next()) {
      const turn = line.waiting.shift();
      presentMs = line.usedMs;
      const startedMs = steadyMs();
      await turn?.();
      line.usedMs += line.cost * Math.max(steadyMs() - startedMs, TURN_MS_MIN);
      if (steadyMs() - breathMs < BREATH_MS) continue;
      await breathe();
      breathMs = steadyMs();
    }
    // In the same turn of the event loop as the last look, so that nothing is left waiting.
    running = undefined;
  }

  return {
    run<T>(share: Share, work: () => Promise<T>): Promise<T> {
      const line = lines.get(share);
      if (line === undefined || line.waiting.length >= WAITING_MAX[share]) {
        const message = `database: ${WAITING_MAX[share]} statements of ${share} wait already`;
        return Promise.reject(new Fault('unavailable', message));
      }
      const { promise, resolve, reject } = Promise.withResolvers<T>();
      if (line.waiting.length === 0) line.usedMs = Math.max(line.usedMs, presentMs);
      line.waiting.push(() => work().then(resolve, reject));
      running ??= Promise.resolve().then(takeTurns);
      return promise;
    },
    async idle() {
      while (running !== undefined) await running;
    },
  };
}
