/**
 * Readings of the supply: live where the nodes answer, else the last good one for a while, of this process or another.
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
   * A reading of now, or the last good one with its own time. Readings that are asked for at the same time are one.
   * @throws Fault `unavailable` when there is none, or none that is young enough.
   */
  read(): Promise<SupplyReading>;
};

export type SupplyReaderOptions = {
  nodes: ContractReader;
  clock: Clock;
  log: Log;
  /** Ends what is under way. */
  signal: AbortSignal;
  terms: SupplyTerms;
  /** For how long a last good reading, or a last good balance, is given. */
  maxAgeMs: number;
  /** What was kept last, by whichever process, with those of these addresses' balances that are known. */
  findKept(addresses: readonly Address[]): Promise<SupplyReading | undefined>;
  keep(reading: SupplyReading): Promise<void>;
};

const ATTEMPTS_MAX = 3;
const RETRY_MS = 250;
/** A node that hangs is given up after half of this (chain/rpc/rpc.ts), so that the next one is asked too. */
const READ_MS_MAX = 60_000;
/** What a caller waits at most; the reading goes on for the next one. */
const ANSWER_MS_MAX = 10_000;

export function createSupplyReader(options: SupplyReaderOptions): SupplyReader {
  const { nodes, clock, log, terms, maxAgeMs } = options;
  const addresses = supplyAddresses(terms).map(({ address }) => address);
  const known = new Map<Address, Balance>();
  let last: SupplyReading | undefined;
  let underWay: Promise<SupplyReading> | undefined;

  async function readNow(): Promise<SupplyReading> {
    const limit = startAbort(options.signal, READ_MS_MAX);
    try {
      const { block, nodeName, method, balances } = await readPatiently(limit.signal);
      const at = clock.now();
      if (balances.size < addresses.length) remember((await findKept())?.balances);
      for (const [address, wei] of balances) known.set(address, { wei, at });
      // Without one of them the figure would be wrong: it is of a moment ago, or there is no answer.
      const complete = new Map(addresses.map((address) => [address, requireBalance(address, at)]));
      last = { at, block, nodeName, method, balances: complete };
      await options.keep(last).catch(tellOf('supply.not_kept'));
      return last;
    } finally {
      limit.release();
    }
  }

  /** Undefined too while the database does not answer: then this process's own will do. */
  function findKept(): Promise<SupplyReading | undefined> {
    return options.findKept(addresses).catch(tellOf('supply.not_found'));
  }

  function remember(balances: SupplyReading['balances'] = new Map()): void {
    for (const [address, balance] of balances) {
      const own = known.get(address);
      if (own === undefined || own.at < balance.at) known.set(address, balance);
    }
  }

  /** What is answered without a node: the newest that has all addresses, if it is young enough. */
  async function findLast(): Promise<SupplyReading | undefined> {
    const kept = await findKept();
    const isWhole = kept !== undefined && addresses.every((address) => kept.balances.has(address));
    if (isWhole && (last === undefined || last.at < kept.at)) last = kept;
    return last !== undefined && isYoung(oldestOf(last), clock.now()) ? last : undefined;
  }

  const tellOf = (event: string) => (error: unknown) => {
    if (!(error instanceof Fault)) throw error;
    log.warn({ error: messageOf(error) }, event);
    return undefined;
  };

  async function readPatiently(signal: AbortSignal) {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await readBalancesAtHead(nodes, { addresses, multicall3: terms.multicall3 }, signal);
      } catch (error) {
        if (!(error instanceof Fault) || attempt === ATTEMPTS_MAX || signal.aborted) throw error;
        await clock.wait(RETRY_MS * attempt, signal);
      }
    }
  }

  function requireBalance(address: Address, now: Date): Balance {
    const balance = known.get(address);
    if (balance !== undefined && isYoung(balance.at, now)) return balance;
    throw new Fault('unavailable', `no node gives the balance of ${address}`);
  }

  const isYoung = (at: Date, now: Date) => now.getTime() - at.getTime() <= maxAgeMs;

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

/** When the oldest of its balances was so. */
function oldestOf({ balances }: SupplyReading): Date {
  return new Date(Math.min(...Array.from(balances.values(), ({ at }) => at.getTime())));
}
