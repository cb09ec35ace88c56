/**
 * One phase of a fairness scenario: mines blocks at fixed times, probes the API meanwhile, then collects the figures of the
 * receivers, PostgreSQL and the kernel.
 */
import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import type { Address } from '../../../src/core/hex.ts';
import type { Figures } from '../../repeats.ts';
import { percentile } from '../../stage.ts';
import type { ProbeTimes, Probing } from './api.ts';
import type { Receipt } from './receivers.ts';
import type { MinedBlock, Stage } from './stage.ts';

/** A watcher that registers its first address at block number `block` of the phase (from 0); the next block pays it. */
export type Newcomer = { block: number; key: string; address: Address; url: string };

export type Phase = {
  name: string;
  /** The maximum number of blocks. */
  blocks: number;
  everyMs: number;
  /** Addresses that get a transfer in each block. */
  paid: readonly Address[];
  /** Gets `ORDERED_TRANSFERS` transfers in each block. Its webhooks are sent in strict order. */
  ordered: Address;
  /** The address of the hostile watchers, which is paid in each block too. */
  busy?: Address;
  newcomers?: readonly Newcomer[];
  probing: Probing;
  /** The phase ends with the block after which hostile receivers have received this many requests since they started. */
  hostileRequests?: number;
};

export type PhaseReport = { name: string; figures: Figures };

const SAMPLE_MS = 500;
const ORDERED_TRANSFERS = 10;
/** The request rate is measured between these shares of a phase's hostile requests, to exclude its start and end. */
const RATE_SHARES = { from: 0.05, to: 0.9 };

type Processors = { all: number; stolen: number };
type Sample = { atMs: number; requests: number; openPeak: number; residentMiB: number };
/** `newcomer`: the first transfer for a watcher that was created during this phase. */
type Transfer = { hash: string; block: MinedBlock; payee: 'healthy' | 'newcomer' | 'ordered' };

/** `createMs` is set when the API has responded. */
type Arrival = { newcomer: Newcomer; askedAt: number; createMs?: number; isPaid: boolean };

export async function measure(stage: Stage, phase: Phase): Promise<PhaseReport> {
  const over = new AbortController();
  const receipts = new Map<string, Receipt>();
  const samples: Sample[] = [await takeSample(stage, receipts)];
  const sampling = sample(stage, { receipts, samples, signal: over.signal });
  const probing = stage.api.probe(phase.probing, over.signal);
  const transfers: Transfer[] = [];
  const blocks: MinedBlock[] = [];
  const arrivals: Arrival[] = [];
  const before = readProcessors();
  const startedAt = performance.now();
  for (let index = 0; index < phase.blocks; index += 1) {
    await delay(Math.max(0, startedAt + index * phase.everyMs - performance.now()));
    const coming = arrivals.filter(({ createMs, isPaid }) => createMs !== undefined && !isPaid);
    const payments = [
      ...phase.paid.map((to) => ({ to, payee: 'healthy' as const })),
      ...coming.map(({ newcomer }) => ({ to: newcomer.address, payee: 'newcomer' as const })),
      ...Array.from({ length: ORDERED_TRANSFERS }, () => ({ to: phase.ordered, payee: 'ordered' as const })),
    ];
    const busy = phase.busy === undefined ? [] : [phase.busy];
    const block = await stage.mine([...payments.map(({ to }) => to), ...busy]);
    blocks.push(block);
    for (const arrival of coming) arrival.isPaid = true;
    for (const [position, { payee }] of payments.entries())
      transfers.push({ hash: block.hashes[position] ?? '', block, payee });
    const { hostileRequests = Number.POSITIVE_INFINITY } = phase;
    if ((samples.at(-1)?.requests ?? 0) >= hostileRequests) break;
    // Not awaited, because blocks arrive on schedule, even when the API is slow.
    for (const newcomer of phase.newcomers?.filter((one) => one.block === index) ?? [])
      arrivals.push(arrive(stage, newcomer));
  }
  // The last block gets as much time as the others. Rows that are still unsent then count with their age.
  await delay(Math.max(0, startedAt + blocks.length * phase.everyMs - performance.now()));
  const endMs = Date.now();
  const stolenPercent = stolenBetween(before, readProcessors());
  over.abort();
  const [times] = await Promise.all([probing, sampling]);
  samples.push(await takeSample(stage, receipts));
  const committed = await stage.readCommits(blocks[0]?.number ?? 0);
  return {
    name: phase.name,
    figures: withoutGaps({
      blocks: blocks.length,
      ...describeTransfers({ transfers, blocks, receipts, committed, endMs }),
      ...describeProbes(times),
      ...describeArrivals(arrivals),
      ...describeSamples(samples),
      stolenPercent,
    }),
  };
}

/** proc(5), stat: the CPU times of all processors so far. Empty where this file does not exist. */
function readProcessors(): Processors {
  const line = existsSync('/proc/stat') ? readFileSync('/proc/stat', 'utf8').split('\n', 1)[0] : undefined;
  // The fields are user, nice, system, idle, iowait, irq, softirq and steal. The first two include guests.
  const times = line?.split(/ +/).slice(1, 9).map(Number) ?? [];
  return { all: times.reduce((sum, time) => sum + time, 0), stolen: times[7] ?? Number.NaN };
}

/** The share of processor time that the host gave to other machines. */
function stolenBetween(before: Processors, after: Processors): number {
  return Math.round((1_000 * (after.stolen - before.stolen)) / (after.all - before.all)) / 10;
}

function arrive(stage: Stage, newcomer: Newcomer): Arrival {
  const arrival: Arrival = { newcomer, askedAt: performance.now(), isPaid: false };
  const { key, address, url } = newcomer;
  // A failed registration gets no response, and the figures show that.
  stage.api.register(key, [{ address, webhook_url: url }]).then(
    () => {
      arrival.createMs = performance.now() - arrival.askedAt;
    },
    () => {},
  );
  return arrival;
}

async function sample(
  stage: Stage,
  { receipts, samples, signal }: { receipts: Map<string, Receipt>; samples: Sample[]; signal: AbortSignal },
): Promise<void> {
  while (!signal.aborted) {
    await delay(SAMPLE_MS);
    await stage.program.assertAlive();
    samples.push(await takeSample(stage, receipts));
  }
}

async function takeSample(stage: Stage, receipts: Map<string, Receipt>): Promise<Sample> {
  const [healthy, hostile] = await Promise.all([stage.healthy.ask(), stage.hostile.ask()]);
  // Only the first attempt counts, because a repeated one is later.
  for (const receipt of healthy.receipts)
    if (!receipts.has(receipt.hash)) receipts.set(receipt.hash, receipt);
  const { requests, openPeak } = hostile;
  return { atMs: Date.now(), requests, openPeak, residentMiB: stage.program.residentMiB() };
}

function describeTransfers({
  transfers,
  blocks,
  receipts,
  committed,
  endMs,
}: {
  transfers: readonly Transfer[];
  blocks: readonly MinedBlock[];
  receipts: ReadonlyMap<string, Receipt>;
  committed: ReadonlyMap<number, number> | undefined;
  endMs: number;
}): Figures {
  /** Used where there are no commit records: the time in the webhooks, when the follower had read the block. */
  const createdAt = new Map<number, number>();
  for (const { hash, block } of transfers) {
    const receipt = receipts.get(hash);
    if (receipt !== undefined) createdAt.set(block.number, receipt.createdAtMs);
  }
  const storedAt = committed ?? createdAt;
  const sentAt = ({ hash }: Transfer) => receipts.get(hash)?.atMs;
  const waitOf = (transfer: Transfer) => {
    const since = storedAt.get(transfer.block.number) ?? transfer.block.minedAtMs;
    return Math.max(0, (sentAt(transfer) ?? endMs) - since);
  };
  const of = (wanted: Transfer['payee']) => transfers.filter(({ payee }) => payee === wanted);
  const [healthy, newcomers, ordered] = [of('healthy'), of('newcomer'), of('ordered')];
  const waits = sorted(healthy.map(waitOf));
  const fromHead = sorted(healthy.map((transfer) => (sentAt(transfer) ?? endMs) - transfer.block.minedAtMs));
  const lags = sorted(
    blocks.map(({ number, minedAtMs }) => Math.max(0, (storedAt.get(number) ?? endMs) - minedAtMs)),
  );
  const countSent = (some: readonly Transfer[]) => some.filter((one) => sentAt(one) !== undefined).length;
  return {
    expected: healthy.length,
    sent: countSent(healthy),
    rowToPostP50Ms: percentile(waits, 0.5),
    rowToPostP99Ms: percentile(waits, 0.99),
    rowToPostMaxMs: percentile(waits, 1),
    minedToPostP50Ms: percentile(fromHead, 0.5),
    minedToPostP99Ms: percentile(fromHead, 0.99),
    followerLagP50Ms: percentile(lags, 0.5),
    followerLagP99Ms: percentile(lags, 0.99),
    newcomersPaid: newcomers.length,
    newcomersSent: countSent(newcomers),
    newcomerFirstMaxMs: maxOf(newcomers.map(waitOf)),
    orderedExpected: ordered.length,
    orderedSent: countSent(ordered),
    orderedP50Ms: percentile(sorted(ordered.map(waitOf)), 0.5),
    orderedP99Ms: percentile(sorted(ordered.map(waitOf)), 0.99),
  };
}

/** A registration without a response counts with the time since its request. */
function describeArrivals(arrivals: readonly Arrival[]): Figures {
  const now = performance.now();
  return {
    newcomers: arrivals.length,
    newcomerCreateMaxMs: maxOf(arrivals.map(({ askedAt, createMs }) => createMs ?? now - askedAt)),
  };
}

function describeProbes({ getMs, postMs, failures }: ProbeTimes): Figures {
  const [gets, posts] = [sorted(getMs), sorted(postMs)];
  return {
    apiCalls: gets.length + posts.length,
    apiFailures: failures,
    apiGetP50Ms: percentile(gets, 0.5),
    apiGetP99Ms: percentile(gets, 0.99),
    apiPostP50Ms: percentile(posts, 0.5),
    apiPostP99Ms: percentile(posts, 0.99),
  };
}

function describeSamples(samples: readonly Sample[]): Figures {
  const before = samples[0]?.requests ?? 0;
  const requests = (samples.at(-1)?.requests ?? 0) - before;
  const reached = (share: number) => samples.find((one) => one.requests - before >= requests * share);
  const [from, to] = [reached(RATE_SHARES.from), reached(RATE_SHARES.to)];
  const seconds = ((to?.atMs ?? 0) - (from?.atMs ?? 0)) / 1000;
  const rate = seconds > 0 ? ((to?.requests ?? 0) - (from?.requests ?? 0)) / seconds : 0;
  return {
    residentPeakMiB: Math.round(maxOf(samples.map(({ residentMiB }) => residentMiB))),
    hostileOpenPeak: maxOf(samples.map(({ openPeak }) => openPeak)),
    hostileRequests: requests,
    hostilePerSecond: Number(rate.toFixed(1)),
  };
}

/** Leaves out percentiles of empty lists, because JSON has no NaN. */
function withoutGaps(figures: Figures): Figures {
  return Object.fromEntries(Object.entries(figures).filter(([, value]) => !Number.isNaN(value)));
}

function sorted(values: readonly number[]): number[] {
  return values.toSorted((one, other) => one - other);
}

/** The largest value; 0 for an empty list. */
function maxOf(values: readonly number[]): number {
  return Math.round(values.reduce((highest, value) => Math.max(highest, value), 0));
}
