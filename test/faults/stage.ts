/**
 * The setup for stories of faults: a real chain behind misbehaving nodes, Chainbell on PostgreSQL, a receiver, and payments to
 * watched addresses.
 */
import { encodeCall } from '../../devnet/contracts.ts';
import { sendTransaction } from '../../devnet/wallet.ts';
import type { ConfigOverrides } from '../../src/config/load.ts';
import type { Config } from '../../src/config/schema.ts';
import { Fault, messageOf } from '../../src/core/fault.ts';
import type { Address, Hash } from '../../src/core/hex.ts';
import type { Db } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { type Receiver, startReceiver } from '../kit/receiver.ts';
import {
  createWatcher,
  freshAddress,
  startTestService,
  type TestService,
  type TestServiceOptions,
  testConfig,
} from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';
import { type NodeProxy, startNodeProxy } from './node-proxy.ts';
import { contentOf, createOracle, type Found, type Oracle } from './oracle.ts';

/** The requirements of a story. */
export type Setting = {
  nodes?: 1 | 2 | 3 | 5;
  /** Whether all heads are polled. Otherwise the first node pushes them. */
  isPolled?: boolean;
  chain?: Omit<NonNullable<ConfigOverrides['chain']>, 'id' | 'rpc'>;
  chainOptions?: Parameters<typeof startChain>[0];
  /** Runs before the first start of the service. */
  prepare?(early: Pick<Stage, 'chain' | 'nodes' | 'parts' | 'payOn'>): Promise<void>;
  /** Further sections of the configuration. Called when the contracts that they need are on the chain. */
  sections?(
    chain: Chain,
    token: Address,
  ): Promise<NonNullable<Parameters<typeof startTestService>[0]['sections']>>;
};

/** The fields of /status that stories read. */
export type Status = {
  state: string;
  problem: { message: string } | null;
  chain: { head: number | null };
  pushed_heads: boolean;
  cursor: { number: number } | null;
  nodes: { state: string; head: number | null; vote: { number: number; hash: string } | null }[];
  agreement: { outvoted: { node: string; message: string }[] } | null;
  proof: { checks: Record<string, string>; unproved_types: string[] } | null;
};

export type Stage = {
  /** The canonical chain. A story may switch to another one. */
  chain: Chain;
  database: TestDatabase;
  receiver: Receiver;
  /** The nodes in order of preference. */
  nodes: readonly [NodeProxy, ...NodeProxy[]];
  service: TestService;
  /** Disposed with the stage. */
  parts: AsyncDisposableStack;
  /** The first block that the service follows. */
  startBlock: number;
  /** The configuration of the service. */
  config: Config;
  /** After a stop: starts another service on the same database, or on a proxy in front of it, with these keys of `chain`. */
  restart(databaseUrl?: string, own?: Setting['chain']): Promise<void>;
  oracle: Oracle;
  /** The watched addresses. */
  watched: readonly [Address, Address];
  /** Stories count faults here that did not strike in a node's proxy. */
  happened: { injected: number };
  /** Like `payBlock`, but on a chain other than the canonical one: payments that never happened. */
  payOn(chain: Chain): Promise<Hash[]>;
  /** Mines one block with a payment of each kind to watched addresses, among others. */
  payBlock(): Promise<Hash[]>;
  /** Mines paid blocks until the condition holds. */
  payUntil(condition: () => boolean | Promise<boolean>, describe: string): Promise<void>;
  /** Resolves when the chain is stored and all notifications are delivered. */
  settled(): Promise<void>;
  status(): Promise<Status>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** The time limit for a hanging node is 30 s, and two of them may follow one another. */
const RECOVERY_MS_MAX = 90_000;
/** Failed webhooks are retried soon. */
const RETRY_MINUTES = [0.01];
/** Far more than the rows of a story, or of a thousand rounds of kills. */
const ROWS_MAX = 100_000;
/** Enough blocks to calibrate the proof. */
const BLOCKS_BEFORE = 4;

/** Builds the stage, with a few blocks followed and notified. */
export async function setStage(setting: Setting): Promise<Stage> {
  const parts = new AsyncDisposableStack();
  try {
    const stage = await buildStage(parts, setting);
    for (let block = 0; block < BLOCKS_BEFORE; block += 1) await stage.payBlock();
    await stage.settled();
    return stage;
  } catch (error) {
    await parts.disposeAsync();
    throw error;
  }
}

async function buildStage(parts: AsyncDisposableStack, setting: Setting): Promise<Stage> {
  const { nodes: nodeCount = 1, chainOptions = {}, chain: config } = setting;
  const chain = parts.use(await startChain(chainOptions));
  const receiver = parts.use(await startReceiver());
  const database = parts.use(await createTestDatabase('postgres'));
  const first = parts.use(await startNodeProxy(chain));
  const others: NodeProxy[] = [];
  while (others.length + 1 < nodeCount) others.push(parts.use(await startNodeProxy(chain)));
  const nodes = [first, ...others] as const;
  const token = await chain.deploy('DemoToken', 'Fault', 'FLT', 18);
  const splitter = await chain.deploy('Splitter');
  await chain.mintToken(token, { to: chain.accounts[3], amount: 10n ** 30n });
  const sections = await setting.sections?.(chain, token);
  await chain.pauseMining();
  const watched = [freshAddress(), freshAddress()] as const;
  let amount = 1000n;
  /** An amount that no other transfer has. */
  const next = () => {
    amount += 1n;
    return amount;
  };
  async function payOn(on: Chain): Promise<Hash[]> {
    const [, one, two, three] = on.accounts;
    const input = (contract: 'DemoToken' | 'Splitter', method: string, values: readonly unknown[]) =>
      encodeCall({ contract, method, values });
    const pay = (from: Address, to: Address) => ({ from, to, valueWei: next() });
    const transactions = [
      pay(one, watched[0]),
      { from: three, to: token, input: input('DemoToken', 'transfer', [watched[0], next()]) },
      { ...pay(two, splitter), input: input('Splitter', 'split', [[watched[1]]]) },
      { from: three, to: token, input: input('DemoToken', 'transfer', [watched[1], next()]) },
      pay(two, freshAddress()),
    ];
    const hashes: Hash[] = [];
    for (const transaction of transactions) hashes.push(await sendTransaction(on, transaction));
    await on.mine();
    return hashes;
  }

  await setting.prepare?.({ chain, nodes, parts, payOn });
  const { number: startBlock } = await chain.head();
  const options = (url = database.url, own: Setting['chain'] = {}): TestServiceOptions => ({
    database: { ...database, url },
    ...{ receivers: [receiver], chain: { startBlock, ...config, ...own }, retryMinutes: RETRY_MINUTES },
    rpc: [...nodes.map(({ url }) => url), ...(setting.isPolled === true ? [] : [first.wsUrl])],
    ...(sections !== undefined && { sections }),
  });
  const start = (url?: string, own?: Setting['chain']) => startTestService(options(url, own));
  const service = parts.use(await start());
  await noteRemovals(service.database);
  const watcher = await createWatcher(service, 'acme');
  const records = new Map<string, string>();
  for (const address of watched)
    records.set(address, (await watcher.watch({ address, webhookUrl: receiver.url })).id);

  const stage: Stage = {
    ...{ chain, database, receiver, nodes, service, startBlock, watched, happened: { injected: 0 } },
    parts,
    config: testConfig(options()),
    oracle: createOracle(() => stage.chain.url, records, startBlock),
    async restart(databaseUrl, own) {
      stage.service = parts.use(await start(databaseUrl, own));
    },
    payOn,
    payBlock: () => payOn(stage.chain),
    async payUntil(condition, describe) {
      let blocks = 0;
      let nextAt = 0;
      const seen = async () => {
        if (await condition()) return true;
        if (performance.now() < nextAt) return false;
        await stage.payBlock();
        blocks += 1;
        // Mines more and more slowly, because a wait for a timeout would otherwise leave the oracle too much to read.
        nextAt = performance.now() + blocks ** 2;
        return false;
      };
      await waitUntil(seen, { describe, timeoutMs: RECOVERY_MS_MAX }).catch(async (error: unknown) => {
        throw new Error(`${messageOf(error)} ${await describeStall(stage)}`, { cause: error });
      });
    },
    async settled() {
      const head = await stage.chain.head();
      const isSettled = async () => {
        const rows = await stage.service.database
          .query(sql`
            select from block where '0x' || encode(hash, 'hex') = ${head.hash}
              and number = (select max(number) from block) and not exists (select from notification_status where state = 'waiting')`)
          .catch((error: unknown) => {
            // These are the service's connections, which the story may be breaking at this moment.
            if (error instanceof Fault && error.code === 'unavailable') return [];
            throw error;
          });
        return rows.length === 1;
      };
      await waitUntil(isSettled, { describe: 'the chain to be stored and told', timeoutMs: RECOVERY_MS_MAX });
    },
    async status() {
      return (await (await fetch(`${stage.service.apiUrl}/status`)).json()) as Status;
    },
    [Symbol.asyncDispose]: () => parts.disposeAsync(),
  };
  return stage;
}

/** The state of the service and the database, for the error message when a wait times out. */
async function describeStall({ nodes, database, status }: Stage): Promise<string> {
  const own = await database.open();
  const activity = await own.query(sql`
    select pid, state, wait_event_type, wait_event, now() - xact_start as lasts, pg_blocking_pids(pid) as blocked_by,
      left(query, 300) as query
    from pg_stat_activity where datname = current_database() and state <> 'idle' and pid <> pg_backend_pid()`);
  await own.close();
  const struck = nodes.map((node) => node.struck());
  return JSON.stringify({ struck, status: await status(), activity }, null, 2);
}

/** Makes the database record every removed block, with a trigger. */
export async function noteRemovals(database: Db): Promise<void> {
  await database.query(sql`create table removed_block (hash bytea not null)`);
  await database.query(sql`
    create function note_removed_block() returns trigger language plpgsql as
      'begin insert into removed_block values (old.hash); return null; end'`);
  await database.query(sql`
    create trigger removed_block after delete on block for each row execute function note_removed_block()`);
}

/** The input of the oracle: stored blocks, removed blocks, all rows and all webhooks. */
export async function findAll({
  service: { database },
  receiver,
}: {
  service: { database: Db };
  receiver: Pick<Receiver, 'requests'>;
}): Promise<Found> {
  const blocks = await database.query<{ number: number; hash: string }>(sql`
    select number, '0x' || encode(hash, 'hex') as hash from block order by number limit ${ROWS_MAX}`);
  const rows = await database.query<
    Record<string, string | null> & { state: string; retry_count: number }
  >(sql`
    select watched_address_id as record, '0x' || encode(tx_hash, 'hex') as hash,
      case kind when 'token' then 'TOKEN_TRANSFER' else 'COIN_TRANSFER' end as type,
      '0x' || encode(sender, 'hex') as sender, '0x' || encode(receiver, 'hex') as receiver, amount::text as amount,
      coalesce('0x' || encode(token, 'hex'), 'eth') as asset, state, retry_count
    from notification_status order by id limit ${ROWS_MAX}`);
  const removed = await database.query<{ hash: string }>(sql`
    select '0x' || encode(hash, 'hex') as hash from removed_block order by hash limit ${ROWS_MAX}`);
  const received = receiver.requests.map(({ json }) => json as Record<string, string> & { id: number });
  return {
    blocks,
    removed: removed.map(({ hash }) => hash),
    rows: rows.map(({ record, hash, type, sender, receiver: to, amount, asset, state, retry_count }) => ({
      content: contentOf(record, hash, type, sender, to, amount, asset),
      state,
      isAttempted: state === 'processed' || retry_count > 0,
    })),
    received: received.map(
      ({ id, watched_addresses_id: record, hash, type, sender, receiver: to, amount, asset }) => ({
        id,
        content: contentOf(record, hash, type, sender, to, amount, asset),
      }),
    ),
  };
}
