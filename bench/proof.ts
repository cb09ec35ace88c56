/**
 * Measures the cost of proving a block: libraries for keccak, tries and signatures, the transfer to a thread, and the whole
 * proof in a thread.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { instantiateSecp256k1 } from '@bitauth/libauth/build/lib/crypto/secp256k1.js';
import { secp256k1 as curves } from '@noble/curves/secp256k1';
import { keccak_256 as noble1 } from '@noble/hashes/sha3';
import * as noble from '@noble/secp256k1';
import sha3 from 'js-sha3';
import { keccak_256 as noble2 } from 'noble-hashes-2/sha3.js';
import * as tiny from 'tiny-secp256k1';
import type { Checks, RawBlock, SenderScope } from '../src/chain/proof/block-checks.ts';
import { keccak256 } from '../src/chain/proof/keccak.ts';
import { encodeRlp, quantityItem } from '../src/chain/proof/rlp.ts';
import { encodeReceipt, encodeTransaction } from '../src/chain/proof/roots.ts';
import { listRoot } from '../src/chain/proof/trie.ts';
import { readMainnetBlocks } from '../test/kit/real-blocks.ts';
import { realchainFolder } from '../test/kit/shared-data.ts';
import type { Figures } from './figures.ts';
import { makeMainnetSizedBlock, type SyntheticBlock } from './synthetic-block.ts';

const REPEATS = 9;
/** A repeat of a short operation lasts at least this long. */
const REPEAT_MICROSECONDS_MIN = 20_000;
/** Blocks that a thread proves before its memory is read and its time is taken. */
const WARM_UP_BLOCKS = 200;
/** The same value that the prover gives its threads. */
const YOUNG_MB_MAX = 8;

type Row = Figures['rows'][number];

export async function proof(): Promise<Figures> {
  const synthetic = makeMainnetSizedBlock();
  const folder = realchainFolder();
  const mainnet = folder === undefined ? [] : readMainnetBlocks(folder);
  const residentBefore = process.memoryUsage().rss;
  await using thread = await startThread(new URL('../src/chain/proof/proof-worker.ts', import.meta.url));
  for (let count = 0; count < WARM_UP_BLOCKS; count += 1) await thread.ask(synthetic);
  const resident = process.memoryUsage().rss - residentBefore;
  const rows = [
    ...(await compareKeccaks(synthetic)),
    ...(await compareTries(synthetic)),
    ...(await compareTransports(synthetic)),
    ...(await measureProof(thread, 'proof of 200 transactions, 500 logs', [synthetic])),
    ...(await measureProof(thread, 'proof, mean of the mainnet blocks', mainnet)),
    ...(await measureProof(thread, 'proof with all senders, mean of the mainnet blocks', mainnet, 'all')),
    ...(await compareRecoveries()),
  ];
  return {
    conditions: {
      ...{
        unit: 'microseconds of processor time where nothing else is said',
        repeats: REPEATS,
        mainnetBlocks: mainnet.length,
      },
      ...{ mainnetTransactions: mainnet.reduce((sum, { block }) => sum + block.transactions.length, 0) },
      ...{
        mainnetLogs: mainnet
          .flatMap(({ receipts }) => receipts)
          .reduce((sum, { logs }) => sum + logs.length, 0),
      },
      ...{ beforeThreadMiB: Math.round(residentBefore / 2 ** 20), threadMiB: Math.round(resident / 2 ** 20) },
    },
    rows,
  };
}

async function compareKeccaks(block: SyntheticBlock): Promise<Row[]> {
  const candidates: Record<string, (bytes: Uint8Array) => unknown> = {
    'hash-wasm (chosen)': keccak256,
    'js-sha3': (bytes) => sha3.keccak256.arrayBuffer(bytes),
    '@noble/hashes 2': noble2,
    '@noble/hashes 1.8': noble1,
  };
  const values: Record<string, Uint8Array[]> = { 'the values of a block': valuesOf(block) };
  for (const size of [32, 136, 576, 4096]) values[`${size} bytes`] = [new Uint8Array(size).fill(7)];
  const rows: Row[] = [];
  for (const [what, all] of Object.entries(values)) {
    const runs: Record<string, () => void> = {};
    for (const [name, hash] of Object.entries(candidates)) {
      runs[name] = () => {
        for (const bytes of all) hash(bytes);
      };
    }
    rows.push(...(await compare(`keccak of ${what}`, runs)));
  }
  return rows;
}

/** Everything that a proof hashes except trie nodes: transactions, both as such and as leaves, and receipts. */
function valuesOf({ block, receipts }: SyntheticBlock): Uint8Array[] {
  const transactions = block.transactions.map(encodeTransaction);
  return [...transactions, ...transactions, ...encodedReceipts({ block, receipts })];
}

function encodedReceipts({ block, receipts }: SyntheticBlock): Uint8Array[] {
  return receipts.map((receipt, index) => encodeReceipt(receipt, block.transactions[index] ?? {}));
}

async function compareTries(block: SyntheticBlock): Promise<Row[]> {
  const values = encodedReceipts(block);
  const runs: Record<string, () => unknown> = { 'own (chosen)': () => listRoot(values) };
  const ethereumjs = await findEthereumjs();
  if (ethereumjs !== undefined) {
    runs['@ethereumjs/mpt'] = () => ethereumjs(values, undefined);
    runs['@ethereumjs/mpt with the chosen keccak'] = () => ethereumjs(values, keccak256);
  }
  const rows = await compare('receipts root of 200 receipts', runs);
  if (ethereumjs !== undefined) return rows;
  return [...rows, { part: 'receipts root of 200 receipts', candidate: '@ethereumjs/mpt: not installed' }];
}

/** The root by @ethereumjs/mpt, if it is installed (`npm install --no-save @ethereumjs/mpt`). */
async function findEthereumjs() {
  const name = '@ethereumjs/mpt';
  const library: unknown = await import(name).catch(() => undefined);
  if (!isMpt(library)) return undefined;
  return async (values: readonly Uint8Array[], hash: ((bytes: Uint8Array) => Uint8Array) | undefined) => {
    const common = hash && { customCrypto: { keccak256: hash } };
    const trie = await library.createMPT({ common });
    for (const [index, value] of values.entries()) {
      await trie.put(encodeRlp(quantityItem(`0x${index.toString(16)}`)), value);
    }
    return trie.root();
  };
}

type Mpt = {
  createMPT(options: object): Promise<{
    put(key: Uint8Array, value: Uint8Array): Promise<void>;
    root(): Uint8Array;
  }>;
};

function isMpt(library: unknown): library is Mpt {
  return typeof library === 'object' && library !== null && 'createMPT' in library;
}

/** Compares libraries that recover a signer's public key. The hashing before and after is the same for all of them. */
async function compareRecoveries(): Promise<Row[]> {
  const libauth = await instantiateSecp256k1();
  const hash = new Uint8Array(createHash('sha256').update('what is signed').digest());
  const secret = new Uint8Array(32).fill(7);
  const { signature, recoveryId } = tiny.signRecoverable(hash, secret);
  const [compact, recovery] = [new Uint8Array(signature), new Uint8Array([recoveryId, ...signature])];
  return compare('one public key recovered from a signature', {
    '@bitauth/libauth (chosen)': () => libauth.recoverPublicKeyUncompressed(compact, recoveryId, hash),
    'tiny-secp256k1': () => tiny.recover(hash, compact, recoveryId, false),
    '@noble/secp256k1': () => noble.recoverPublicKey(recovery, hash, { prehash: false }),
    '@noble/curves': () =>
      curves.Signature.fromCompact(compact).addRecoveryBit(recoveryId).recoverPublicKey(hash),
  });
}

/** Measures what sending a block to a thread costs the main thread and that thread. */
async function compareTransports(block: SyntheticBlock): Promise<Row[]> {
  const program = new URL(`data:text/javascript,${encodeURIComponent(RECEIVER)}`);
  await using thread = await startThread(program);
  const text = JSON.stringify(block);
  const ways: Record<string, () => unknown> = {
    'as an object (chosen)': () => block,
    'as text': () => JSON.stringify(block),
    'text that is there already': () => text,
  };
  const main = createSeries();
  const other = createSeries();
  for (let repeat = 0; repeat <= REPEATS; repeat += 1) {
    for (const [name, make] of Object.entries(ways)) {
      let handingMs = 0;
      const before = await thread.cpuMicroseconds();
      for (let count = 0; count < TRANSPORTED_BLOCKS; count += 1) {
        const startedAt = performance.now();
        const answer = thread.ask(make());
        handingMs += performance.now() - startedAt;
        await answer;
      }
      // The first repeat warms up.
      if (repeat === 0) continue;
      main.add(name, (handingMs * 1000) / TRANSPORTED_BLOCKS);
      other.add(name, ((await thread.cpuMicroseconds()) - before) / TRANSPORTED_BLOCKS);
    }
  }
  return [
    ...main.rows('handing a block over: wall time of the main thread'),
    ...other.rows('receiving it in the thread'),
  ];
}

const TRANSPORTED_BLOCKS = 20;
const RECEIVER = `import { parentPort } from 'node:worker_threads';
  parentPort.on('message', ({ id, raw }) => {
    if (typeof raw === 'string') JSON.parse(raw);
    parentPort.postMessage({ id });
  });`;

/** For each block: the time until the answer, and the thread's CPU time, which other programs don't affect. */
async function measureProof(
  thread: Thread,
  part: string,
  raws: readonly RawBlock[],
  scope: SenderScope = 'matched',
): Promise<Row[]> {
  if (raws.length === 0) return [{ part, candidate: 'no data' }];
  const times = createSeries();
  const blocks = raws.length === 1 ? Array.from({ length: SAME_BLOCKS }, () => raws[0]) : raws;
  for (let repeat = 0; repeat <= REPEATS; repeat += 1) {
    const before = await thread.cpuMicroseconds();
    const startedAt = performance.now();
    for (const raw of blocks) checkProved(await thread.ask(raw, scope));
    // The first repeat warms up.
    if (repeat === 0) continue;
    times.add(
      'wall time from asking to the answer',
      ((performance.now() - startedAt) * 1000) / blocks.length,
    );
    times.add('processor time of the thread', ((await thread.cpuMicroseconds()) - before) / blocks.length);
  }
  return times.rows(part);
}

const SAME_BLOCKS = 25;

function checkProved(checks: Checks | undefined): void {
  if (
    checks?.headerHash === 'holds' &&
    checks.transactionsRoot === 'holds' &&
    checks.receiptsRoot === 'holds'
  )
    return;
  throw new Error(`a block was not proved: ${JSON.stringify(checks)}`);
}

type Thread = Awaited<ReturnType<typeof startThread>>;

/** A worker thread that answers one message at a time. */
async function startThread(program: URL) {
  const worker = new Worker(program, { resourceLimits: { maxYoungGenerationSizeMb: YOUNG_MB_MAX } });
  await once(worker, 'online');
  let id = 0;
  return {
    async ask(raw: unknown, scope: SenderScope = 'matched'): Promise<Checks | undefined> {
      const answer = once(worker, 'message');
      id += 1;
      worker.postMessage({ id, raw, scope });
      const [{ answer: proof }] = await answer;
      return proof;
    },
    async cpuMicroseconds() {
      const { user, system } = await worker.cpuUsage();
      return user + system;
    },
    async [Symbol.asyncDispose]() {
      await worker.terminate();
    },
  };
}

/** Measures the thread's CPU time of each candidate, in turn and repeatedly. */
async function compare(part: string, runs: Record<string, () => unknown>): Promise<Row[]> {
  const times = createSeries();
  for (let repeat = 0; repeat <= REPEATS; repeat += 1) {
    for (const [name, run] of Object.entries(runs)) {
      const microseconds = await timeOf(run);
      // The first repeat warms up.
      if (repeat > 0) times.add(name, microseconds);
    }
  }
  return times.rows(part);
}

/** The average time of one run, over as many runs as last long enough to measure. */
async function timeOf(run: () => unknown): Promise<number> {
  for (let count = 1; ; count *= 2) {
    const before = process.threadCpuUsage();
    for (let done = 0; done < count; done += 1) {
      const outcome = run();
      if (outcome instanceof Promise) await outcome;
    }
    const { user, system } = process.threadCpuUsage(before);
    if (user + system >= REPEAT_MICROSECONDS_MIN) return (user + system) / count;
  }
}

/** Collects figures by candidate. */
function createSeries() {
  const all = new Map<string, number[]>();
  return {
    add(candidate: string, value: number) {
      all.set(candidate, [...(all.get(candidate) ?? []), value]);
    },
    rows: (part: string): Row[] =>
      Array.from(all, ([candidate, values]) => {
        const sorted = values.toSorted((one, other) => one - other);
        const at = (index: number) => Number((sorted[index] ?? Number.NaN).toPrecision(3));
        return { part, candidate, median: at(sorted.length >> 1), min: at(0), max: at(sorted.length - 1) };
      }),
  };
}
