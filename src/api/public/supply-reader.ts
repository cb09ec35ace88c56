/**
 * Readings of the native coin's supply: live while the nodes answer. Otherwise the last good reading of any process, until it
 * is too old.
 */
import { readBalancesAtHead } from '../../chain/contracts/balances.ts';
import type { ContractReader } from '../../chain/contracts/contracts.ts';
import { startAbort } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Address } from '../../core/hex.ts';
import type { Log } from '../../core/log.ts';
import { type Balance, type SupplyReading, type SupplyTerms, supplyAddresses } from './supply-record.ts';

export type SupplyReader = {
  terms: SupplyTerms;
  /**
   * A reading of now, or the last good one with its time. Concurrent calls share one reading.
   * @throws Fault `unavailable` when there is none that is young enough.
   */
  read(): Promise<SupplyReading>;
};

export type SupplyReaderOptions = {
  nodes: ContractReader;
  clock: Clock;
  log: Log;
  /** Aborts a reading under way. */
  signal: AbortSignal;
  terms: SupplyTerms;
  /** The maximum age of a last good reading or balance. */
  maxAgeMs: number;
  /** The last stored reading of any process, with the stored balances of these addresses. */
  findKept(addresses: readonly Address[]): Promise<SupplyReading | undefined>;
  keep(reading: SupplyReading): Promise<void>;
};

const ATTEMPTS_MAX = 3;
const RETRY_MS = 250;
/** A request to a hanging node ends after half of this (chain/rpc/rpc.ts), so that there is time for the next node. */
const READ_MS_MAX = 60_000;
/** How long a caller waits. The reading continues for the next caller. */
const ANSWER_MS_MAX = 10_000;
/** How long the database may take. A reading is then answered before it is kept, or without the last stored one. */
const DATABASE_MS_MAX = 2_000;

export function createSupplyReader(options: SupplyReaderOptions): SupplyReader {
  const { clock, log, terms, maxAgeMs } = options;
  const inTime = createPatience(options);
  const addresses = supplyAddresses(terms).map(({ address }) => address);
  const known = new Map<Address, Balance>();
  let last: SupplyReading | undefined;
  let underWay: Promise<SupplyReading> | undefined;

  async function readNow(): Promise<SupplyReading> {
    const limit = startAbort(options.signal, READ_MS_MAX);
    try {
      const { block, nodeName, method, balances } = await readWithRetries(options, addresses, limit.signal);
      const at = clock.now();
      if (balances.size < addresses.length) remember((await findKept())?.balances);
      for (const [address, wei] of balances) known.set(address, { wei, at });
      // Without one balance the sum would be wrong, so an unreadable balance is taken from the last reading, or there is no answer.
      const complete = new Map(addresses.map((address) => [address, requireBalance(address, at)]));
      last = { at, block, nodeName, method, balances: complete };
      await inTime(options.keep(last), 'supply.not_kept');
      return last;
    } finally {
      limit.release();
    }
  }

  /** Undefined also while the database does not answer. This process's last reading is used then. */
  function findKept(): Promise<SupplyReading | undefined> {
    return inTime(options.findKept(addresses), 'supply.not_found');
  }

  function remember(balances: SupplyReading['balances'] = new Map()): void {
    for (const [address, balance] of balances) {
      const own = known.get(address);
      if (own === undefined || own.at < balance.at) known.set(address, balance);
    }
  }

  /** The answer without a node: the newest reading that has all addresses, if it is young enough. */
  async function findLast(): Promise<SupplyReading | undefined> {
    const kept = await findKept();
    const isWhole = kept !== undefined && addresses.every((address) => kept.balances.has(address));
    if (isWhole && (last === undefined || last.at < kept.at)) last = kept;
    return last !== undefined && isYoung(oldestOf(last), clock.now()) ? last : undefined;
  }

  function requireBalance(address: Address, now: Date): Balance {
    const balance = known.get(address);
    if (balance !== undefined && isYoung(balance.at, now)) return balance;
    throw new Fault('unavailable', `no node gives the balance of ${address}`);
  }

  /** A time in the future is as uncertain as one in the past: the clock was set back. */
  const isYoung = (at: Date, now: Date) => Math.abs(now.getTime() - at.getTime()) <= maxAgeMs;

  async function readInTime(): Promise<SupplyReading> {
    underWay ??= readNow().finally(() => {
      underWay = undefined;
    });
    const reading = await firstOrLate({ clock, signal: options.signal }, [underWay], ANSWER_MS_MAX);
    if (reading === 'late') throw new Fault('unavailable', `no balances after ${ANSWER_MS_MAX} ms`);
    return reading;
  }

  return {
    terms,
    async read() {
      try {
        return await readInTime();
      } catch (error) {
        if (!(error instanceof Fault)) throw error;
        const old = await findLast();
        if (old === undefined) throw error;
        log.warn({ error: messageOf(error), of: old.at.toISOString() }, 'supply.stale');
        return old;
      }
    },
  };
}

/** Waits for work of the database. Logs a Fault or a late outcome, and goes on without it. */
function createPatience({ clock, log, signal }: SupplyReaderOptions) {
  return async <T>(work: Promise<T>, event: string): Promise<T | undefined> => {
    const warn = (error: string) => log.warn({ error }, event);
    const outcome = work.catch((error: unknown) => {
      if (!(error instanceof Fault)) throw error;
      warn(messageOf(error));
      return undefined;
    });
    const first = await firstOrLate({ clock, signal }, [outcome], DATABASE_MS_MAX);
    if (first !== 'late') return first;
    if (!signal.aborted) warn(`the database did not answer within ${DATABASE_MS_MAX} ms`);
    return undefined;
  };
}

async function readWithRetries(
  { nodes, clock, terms: { multicall3 } }: SupplyReaderOptions,
  addresses: readonly Address[],
  signal: AbortSignal,
) {
  for (let attempt = 1; ; attempt += 1) {
    try {
      return await readBalancesAtHead(nodes, { addresses, multicall3 }, signal);
    } catch (error) {
      if (!(error instanceof Fault) || attempt === ATTEMPTS_MAX || signal.aborted) throw error;
      await clock.wait(RETRY_MS * attempt, signal);
    }
  }
}

/** The time of its oldest balance. */
function oldestOf({ balances }: SupplyReading): Date {
  return new Date(Math.min(...Array.from(balances.values(), ({ at }) => at.getTime())));
}
