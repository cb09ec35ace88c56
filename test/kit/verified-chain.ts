/**
 * A real chain that the service has followed. Tests change its stored data by hand; `restore` undoes the changes.
 */
import { after, beforeEach } from 'node:test';
import { encodeCall } from '../../devnet/contracts.ts';
import { runVerification } from '../../src/app/verification.ts';
import type { Difference } from '../../src/audit/compare.ts';
import type { VerifyOptions } from '../../src/audit/verify.ts';
import type { VerifyReport } from '../../src/audit/verify-report.ts';
import type { ConfigOverrides } from '../../src/config/load.ts';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import type { Address, Hash } from '../../src/core/hex.ts';
import { type Sql, sql } from '../../src/store/db/sql.ts';
import { timeSum } from '../../src/store/db/time-sum.ts';
import { startChainbell } from '../cli/chainbell.ts';
import { type Chain, startChain } from './anvil.ts';
import { createTestDatabase, type TestDatabase } from './database.ts';
import type { NodeBlock } from './scripted-node.ts';
import {
  CHAIN_ID,
  createWatcher,
  freshAddress,
  SECRET,
  startTestService,
  type TestService,
  testConfig,
} from './service.ts';

/** Coin: 1 by the payment and 2 by the split (2 + 1 wei). Token: 1 for the receiver (5 units), 2 for the payer with its mint. */
export const NOTIFICATIONS = 1 + 2 + 1 + 2;

type VerifiedChain = AsyncDisposable & {
  chain: Chain;
  place: TestDatabase;
  service: TestService;
  /** The service watches the receiver for coin and tokens, and the payer for tokens only. */
  records: { receiver: string; payer: string };
  receiver: Address;
  payer: Address;
  /** The blocks and transactions of a plain payment to the receiver, and of a split with two internal transfers to it. */
  payment: { block: number; hash: Hash };
  split: { block: number; hash: Hash };
  last: number;
  /** Runs a statement, also one that changes the view `notification_status`. */
  change(statement: Sql): Promise<unknown>;
  /** Restores the data as the service had stored it. */
  restore(): Promise<void>;
};

const tables = ['block', 'watched_address', 'notification', 'queue', 'ended', 'chain', 'lane'];

async function openVerifiedChain(): Promise<VerifiedChain> {
  const parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const place = parts.use(await createTestDatabase('postgres'));
  const service = parts.use(
    await startTestService({
      database: place,
      rpc: [chain.url],
      roles: ['follower', 'api'],
      chain: { startBlock: 1 },
    }),
  );
  const payer: Address = chain.accounts[0];
  const receiver = freshAddress();
  const watcher = await createWatcher(service, 'acme');
  const webhookUrl = 'https://one.example/hook';
  const records = {
    receiver: (await watcher.watch({ address: receiver, webhookUrl })).id,
    payer: (await watcher.watch({ address: payer, webhookUrl, watchCoin: false })).id,
  };
  const paid = await chain.transferNative({ from: payer, to: receiver, valueWei: 7n });
  const payment = { block: paid.blockNumber, hash: paid.hash };
  const splitter = await chain.deploy('Splitter');
  const input = encodeCall({ contract: 'Splitter', method: 'split', values: [[receiver, receiver]] });
  const parted = await chain.execute({ from: payer, to: splitter, valueWei: 3n, input });
  const split = { block: parted.blockNumber, hash: parted.hash };
  const token = await chain.deploy('DemoToken', 'Verify', 'VER', 18);
  await chain.mintToken(token, { to: payer, amount: 5n });
  await chain.transferToken(token, { from: payer, to: receiver, amount: 5n });
  const last = (await chain.head()).number;
  await service.inSync(chain);
  // Long enough before the blocks that their order is certain.
  const edited = await place.open();
  const change = (statement: Sql) => edited.query(statement);
  const earlier = timeSum(sql`created_at`, sql`interval '-1 hour'`);
  await change(sql`update watched_address set created_at = ${earlier}, updated_at = ${earlier}`);
  const columns = new Map<string, string>();
  for (const table of tables) {
    const rows = await service.database.query<{ name: string }>(sql`
      select column_name as name from information_schema.columns
      where table_name = ${table} and is_generated = 'NEVER' order by ordinal_position`);
    columns.set(table, rows.map(({ name }) => name).join());
    await service.database.script(`create table kept_${table} as select ${columns.get(table)} from ${table}`);
    // Databases on Citus are used again.
    parts.defer(() => service.database.script(`drop table kept_${table}`));
  }
  return {
    ...{ chain, place, service, records, receiver, payer, payment, split, last, change },
    async restore() {
      for (const table of tables) {
        await service.database.script(
          `delete from ${table};
           insert into ${table} (${columns.get(table)}) overriding system value select * from kept_${table}`,
        );
      }
    },
    [Symbol.asyncDispose]: () => parts.disposeAsync(),
  };
}

/** Opens one chain for all tests of a file and restores it before each test. Returns short functions for its database. */
export async function useVerifiedChain() {
  const story = await openVerifiedChain();
  beforeEach(() => story.restore());
  after(() => story[Symbol.asyncDispose]());
  return {
    ...story,
    verify: (options?: Parameters<typeof verifyChain>[1]): Promise<Run> => verifyChain(story, options),
    /** Runs the command as a process, on the database that the service is using. */
    run: (...words: string[]) => runOn(story, ...words).ended,
    /** The same, while it runs. */
    start: (...words: string[]) => runOn(story, ...words),
    nodeBlocks: () => nodeBlocks(story),
  };
}

type Progress = Parameters<VerifyOptions['onProgress']>[0];
export type Run = {
  report: VerifyReport;
  differences: Difference[];
  dissents: string[];
  progress: Progress[];
};

/** Verifies the range. With `onWait`, a wait lasts until its promise resolves. */
async function verifyChain(
  { chain, place }: Pick<VerifiedChain, 'chain' | 'place'>,
  options: {
    from?: number;
    to?: number;
    rpc?: string | string[];
    settings?: ConfigOverrides['chain'];
    onWait?: () => Promise<void>;
  } = {},
): Promise<Run> {
  const { from, to, rpc = chain.url, settings = {}, onWait } = options;
  const differences: Difference[] = [];
  const dissents: string[] = [];
  const progress: Progress[] = [];
  const clock: Clock = { ...systemClock(), ...(onWait && { wait: onWait }) };
  const report = await runVerification(testConfig({ database: place, rpc: [rpc].flat(), chain: settings }), {
    ...{ from, to, clock, signal: new AbortController().signal },
    onDifference: (difference) => differences.push(difference),
    onDissent: (dissent) => dissents.push(`${dissent.node}: ${dissent.message}`),
    onProgress: (one) => progress.push(one),
  });
  return { report, differences, dissents, progress };
}

/** Runs the command as a process, on the database that the service is using. */
const runOn = ({ chain, place }: Pick<VerifiedChain, 'chain' | 'place'>, ...words: string[]) =>
  startChainbell(
    place.dataDir,
    {
      ...{ CHAINBELL_CHAIN_ID: String(CHAIN_ID), CHAINBELL_CHAIN_RPC: chain.url },
      ...{ CHAINBELL_DATABASE_URL: place.url, CHAINBELL_SECRET: SECRET },
    },
    ...words,
  );

const quantity = (number: number) => `0x${number.toString(16)}`;

/** The block at a height with its transactions, as the node returns it. */
export async function blockAt(chain: Chain, number: number): Promise<NodeBlock['block'] & { hash: Hash }> {
  return (await chain.rpc('eth_getBlockByNumber', [quantity(number), true])) as NodeBlock['block'] & {
    hash: Hash;
  };
}

/** The block at a height with receipts and traces, for a scripted node. */
export async function nodeBlockAt(chain: Chain, number: number): Promise<NodeBlock> {
  const receipts = await chain.rpc('eth_getBlockReceipts', [quantity(number)]);
  // Nodes don't trace the genesis block.
  const traces =
    number === 0
      ? []
      : await chain.rpc('debug_traceBlockByNumber', [quantity(number), { tracer: 'callTracer' }]);
  return { block: await blockAt(chain, number), receipts: receipts as NodeBlock['receipts'], traces };
}

/** All blocks of the chain. */
export const nodeBlocks = ({ chain, last }: Pick<VerifiedChain, 'chain' | 'last'>): Promise<NodeBlock[]> =>
  Promise.all(Array.from({ length: last + 1 }, (_, number) => nodeBlockAt(chain, number)));
