/**
 * Reads the contracts of pairs at the newest stored block: at the start, after a mint or burn, and when the protocol fee is
 * switched on or off, because no event reports that.
 */
import { type ContractReader, readAtBlock } from '../../chain/contracts/contracts.ts';
import { backOffMs } from '../../core/back-off.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { Log } from '../../core/log.ts';
import type { Step } from '../../core/loop.ts';
import type { BlockHeader } from '../../domain/block.ts';
import { pairPrice, type ValuedPair } from '../../domain/pair.ts';
import { findBlockHash, findTipHeader } from '../../store/blocks/blocks.ts';
import { lockCommits } from '../../store/blocks/commit-lock.ts';
import type { Database, Tx } from '../../store/db/db.ts';
import { insertReadings, listReadings, type PairReading } from '../../store/market/pair-readings.ts';
import {
  findPairStateOfBlock,
  insertPairStates,
  type PairStateChange,
} from '../../store/market/pair-states.ts';
import { isInCoverage, listPairCoverage } from '../../store/market/pairs.ts';
import { readFees, readPairs } from './pair-contracts.ts';

type PairReadingOptions = {
  database: Database;
  nodes: ContractReader;
  clock: Clock;
  log: Log;
  pairs: readonly ValuedPair[];
};

/** Pairs of one reading. */
const READ_MAX = 100;
/** How often factories are asked whether the fee is on. */
const FEE_MS = 60_000;
/** How long a pair whose contract did not answer rests: doubled each time. */
const REST_MS = { min: 15_000, max: 600_000 };

/**
 * A step that reads pairs whose LP supply is not certain. It throws a Fault when no node can answer for the newest stored
 * block, or, after it has stored the others, when a contract does not answer like a pair. Such a pair is asked alone from then on, and
 * rarely, because each request that it spoils is repeated for every other one.
 */
export function createPairReadings(options: PairReadingOptions): Step {
  const { database, nodes, clock, log, pairs } = options;
  let feesReadMs = Number.NEGATIVE_INFINITY;
  const suspects = createSuspects(clock);
  /** Pairs whose protocol fee was switched, until they are read. */
  const switched = new Set<number>();
  /** The block at which there was nothing to read. */
  let settledAt: string | undefined;

  return async (signal) => {
    const tip = await findTipHeader(database);
    if (tip === undefined) return 'idle';
    const areFeesDue = clock.steadyMs() - feesReadMs >= FEE_MS;
    if (tip.hash === settledAt && !areFeesDue) return suspects.idle();
    const trusted = pairs.filter(({ id }) => !suspects.has(id));
    const known = await listReadings(
      database,
      pairs.map(({ id }) => id),
    );
    const fees = areFeesDue
      ? await readAtBlock(nodes, tip, (having, at) => readFees(having, trusted, at, signal), signal)
      : new Map<number, boolean | Fault>();
    if (areFeesDue) feesReadMs = clock.steadyMs();
    for (const [pairId, answer] of fees) suspects.note(pairId, answer);
    for (const { pairId, isFeeOn } of known) if (isSwitched(isFeeOn, fees.get(pairId))) switched.add(pairId);
    const wanted = new Set(
      known.flatMap(({ pairId, isCurrent }) => (isCurrent && !switched.has(pairId) ? [] : [pairId])),
    );
    const together = pairs.filter(({ id }) => wanted.has(id) && !suspects.has(id)).slice(0, READ_MAX);
    const suspect = suspects.nextDue();
    const asked = together.length > 0 ? together : pairs.filter(({ id }) => id === suspect);
    if (asked.length === 0) {
      settledAt = tip.hash;
      return suspects.idle();
    }
    const answers = await readAtBlock(
      nodes,
      tip,
      (having, at) => readPairs(having, asked, at, signal),
      signal,
    );
    for (const [index, { id }] of asked.entries()) suspects.note(id, answers[index]);
    const readings = answers.flatMap((answer) => (answer instanceof Fault ? [] : [answer]));
    for (const { pairId } of readings) switched.delete(pairId);
    if (readings.length > 0) await database.transaction((tx) => store(tx, readings, tip));
    for (const answer of answers) if (answer instanceof Fault) throw answer;
    return 'worked';
  };

  /** Stores nothing if the block was orphaned meanwhile. The next step reads at the new tip. */
  async function store(tx: Tx, readings: readonly PairReading[], tip: BlockHeader): Promise<void> {
    await lockCommits(tx);
    if ((await findBlockHash(tx, tip.number)) !== tip.hash) return;
    await insertReadings(tx, readings, tip.number);
    const coverage = await listPairCoverage(
      tx,
      readings.map(({ pairId }) => pairId),
    );
    const coverageOf = new Map(coverage.map((one) => [one.pairId, one]));
    for (const reading of readings) {
      const { pairId, reserve0, reserve1 } = reading;
      const stored = await findPairStateOfBlock(tx, pairId, tip.number);
      // Blocks may be missing since a state from before the followed and read ones. The state of a reading itself doesn't count
      // here, because it is no longer covered after its reading has been replaced.
      const isKept = stored !== undefined && isInCoverage(stored, coverageOf.get(pairId));
      if (isKept && stored.reserve0 === reserve0 && stored.reserve1 === reserve1) continue;
      if (isKept)
        log.warn({ pair: pairId, block: tip.number, stored: stored.blockNumber }, 'pair.state_differs');
      await insertPairStates(tx, [stateOf(pairs, reading, tip)]);
    }
  }
}

/** Pairs whose contract, or the contract of their factory, did not answer the last time. */
function createSuspects(clock: Pick<Clock, 'steadyMs'>) {
  const rests = new Map<number, { fault: Fault; failures: number; untilMs: number }>();
  return {
    has: (pairId: number) => rests.has(pairId),
    /** The one whose rest ended first. */
    nextDue(): number | undefined {
      const ended = [...rests].filter(([, { untilMs }]) => untilMs <= clock.steadyMs());
      return ended.sort(([, one], [, other]) => one.untilMs - other.untilMs)[0]?.[0];
    },
    /** Idle if there is none. @throws the Fault of one that rests, so that `/status` names it if it stays. */
    idle(): 'idle' {
      for (const { fault } of rests.values()) throw fault;
      return 'idle';
    },
    note(pairId: number, answer: unknown): void {
      if (!(answer instanceof Fault)) {
        rests.delete(pairId);
        return;
      }
      const failures = rests.get(pairId)?.failures ?? 0;
      rests.set(pairId, {
        fault: answer,
        failures: failures + 1,
        untilMs: clock.steadyMs() + backOffMs(REST_MS, failures),
      });
    },
  };
}

/** Whether the protocol fee is no longer as it was in the last reading. */
const isSwitched = (was: boolean | undefined, is: boolean | Fault | undefined) =>
  was !== undefined && typeof is === 'boolean' && is !== was;

function stateOf(
  pairs: readonly ValuedPair[],
  { pairId, reserve0, reserve1 }: PairReading,
  { number, minedAt }: BlockHeader,
): PairStateChange {
  const pair = pairs.find(({ id }) => id === pairId);
  const price = pair && pairPrice(pair, { reserve0, reserve1 });
  const place = { pairId, blockNumber: number, minedAt, reserve0, reserve1 };
  return { ...place, price, supplyChange: 0n, liquidityK: undefined };
}
