/**
 * Measures what one unit of load costs, where no other scenario does: bytes of a watched address, a notification and an attempt;
 * processor time of the service and of PostgreSQL for a block, a transaction, a webhook and an API read; memory and sockets of a
 * delivery queue; connections of a process. `chainbell capacity` calculates with the results (src/domain/unit-costs.ts).
 */
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import type { Address } from '../src/core/hex.ts';
import type { Database } from '../src/store/db/db.ts';
import { openDatabase } from '../src/store/db/open.ts';
import { sql } from '../src/store/db/sql.ts';
import { createTestDatabase } from '../test/kit/database.ts';
import { waitUntil } from '../test/kit/wait.ts';
import type { Figures } from './figures.ts';
import { insertRecords } from './filter.ts';
import { cpuSecondsOf, cpuSecondsOfTree, residentMiBOf } from './program.ts';
import { type Stage, setStage } from './stage.ts';
import { commitBlock, DAY_MS, deliver, startStore } from './stored-deliveries.ts';

const ADDRESSES = 100_000;
const NOTIFICATIONS = 40_000;
const BLOCK_TRANSFERS = 1_000;
const BLOCKS = 150;
const LARGE_BLOCKS = 60;
const TRANSACTIONS_OF_BLOCK = 160;
const QUEUES = 500;
const READS = 2_000;
const READERS = 8;
const SENDERS = 4;
const GAS_OF_TRANSFER = 21_000;
const IDLE_MS = 15_000;
const STORED_MS_MAX = 240_000;
const KEEP_MS = 30 * DAY_MS;

/** Seconds of processor time. */
type Cost = { service: number; postgres: number };
type Row = { what: string; unit: string; value: number };

export async function capacity(): Promise<Figures> {
  return {
    conditions: {
      ...{ addresses: ADDRESSES, notifications: NOTIFICATIONS, transfersOfACommit: BLOCK_TRANSFERS },
      ...{
        blocks: BLOCKS,
        transactionsOfABlock: TRANSACTIONS_OF_BLOCK,
        deliveryQueues: QUEUES,
        reads: READS,
      },
      ...{ database: 'PostgreSQL without fsync', receiver: 'HTTP on the same machine' },
    },
    rows: [...(await measureStore()), ...(await measureService())],
  };
}

/** The functions of the store, without a service. */
async function measureStore(): Promise<Row[]> {
  process.stderr.write('  the store …\n');
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  const server = await findServer(database);
  const { clock } = await startStore(database, KEEP_MS);
  const before = await sizeOf(database, 'watched_address');
  await database.query(insertRecords(ADDRESSES));
  await database.script('vacuum analyze watched_address');
  const addressBytes = ((await sizeOf(database, 'watched_address')) - before) / ADDRESSES;

  let [commitSeconds, settleSeconds] = [0, 0];
  for (let number = 1; number <= NOTIFICATIONS / BLOCK_TRANSFERS; number += 1) {
    const startedAt = cpuSecondsOfTree(server);
    await commitBlock(database, { number, count: BLOCK_TRANSFERS, now: clock.now() });
    const committedAt = cpuSecondsOfTree(server);
    await deliver(database, { clock, reads: [], count: Infinity });
    clock.advance(1_000);
    commitSeconds += committedAt - startedAt;
    settleSeconds += cpuSecondsOfTree(server) - committedAt;
  }
  await database.script('vacuum analyze');
  const bytesOf = async (table: string) => (await sizeOf(database, table)) / NOTIFICATIONS;
  return [
    { what: 'watched address', unit: 'bytes', value: round(addressBytes) },
    { what: 'notification', unit: 'bytes', value: round(await bytesOf('notification')) },
    { what: 'attempt', unit: 'bytes', value: round(await bytesOf('delivery_attempt')) },
    microseconds('commit of a notification, PostgreSQL', commitSeconds / NOTIFICATIONS),
    microseconds('lease, read and settlement of a webhook, PostgreSQL', settleSeconds / NOTIFICATIONS),
  ];
}

/** The service with all roles as one process. */
async function measureService(): Promise<Row[]> {
  process.stderr.write('  the service …\n');
  let received = 0;
  await using stage = await setStage({
    internalTransfers: 'off',
    receiverHost: '0.0.0.0',
    answer() {
      received += 1;
      return { status: 204 };
    },
  });
  const rows: Row[] = [];
  const database = await openDatabase({ url: stage.database.url, dataDir: '' });
  await using parts = new AsyncDisposableStack();
  parts.defer(() => database.close());
  const server = await findServer(database);
  const measure = async (work: () => Promise<unknown>) => {
    const [service, postgres, startedAt] = [
      cpuSecondsOf(stage.pid),
      cpuSecondsOfTree(server),
      performance.now(),
    ];
    await work();
    return {
      service: cpuSecondsOf(stage.pid) - service,
      postgres: cpuSecondsOfTree(server) - postgres,
      seconds: (performance.now() - startedAt) / 1_000,
    };
  };
  const caughtUp = () => waitForHead(stage, database);

  await mineBlocks(stage, 50, 1);
  await caughtUp();
  // Timers run whether or not there is work. Their time isn't counted as that of blocks and reads.
  const idle = await measure(() => delay(IDLE_MS));
  const cost = async (work: () => Promise<void>): Promise<Cost> => {
    const { service, postgres, seconds } = await measure(work);
    const idled = seconds / idle.seconds;
    return { service: service - idle.service * idled, postgres: postgres - idle.postgres * idled };
  };
  rows.push({
    what: 'idle process, service',
    unit: 'microseconds a second',
    value: round((idle.service / idle.seconds) * 1e6),
  });
  rows.push({ what: 'process with all roles', unit: 'MiB', value: round(residentMiBOf(stage.pid)) });
  rows.push(...(await measureBlocks(stage, { measure, cost, caughtUp, idle })));
  rows.push(...(await measureQueues(stage, { received: () => received })));
  rows.push({
    what: 'database connections of a process under load',
    unit: 'connections',
    value: await countConnections(database),
  });
  const reads = await cost(() => readMany(stage));
  rows.push(microseconds('uncached API read, service', reads.service / READS));
  rows.push(microseconds('uncached API read, PostgreSQL', reads.postgres / READS));
  return rows;
}

/** What blocks cost that hold no watched transfer: small ones as they come, and large ones when the service catches up. */
async function measureBlocks(
  stage: Stage,
  {
    measure,
    cost,
    caughtUp,
    idle,
  }: {
    measure(work: () => Promise<void>): Promise<Cost & { seconds: number }>;
    cost(work: () => Promise<void>): Promise<Cost>;
    caughtUp(): Promise<void>;
    idle: Cost & { seconds: number };
  },
): Promise<Row[]> {
  const small = await cost(() => mineBlocks(stage, BLOCKS, 1).then(caughtUp));
  const large = await catchUp(stage, { measure, caughtUp });
  const transactions = LARGE_BLOCKS * TRANSACTIONS_OF_BLOCK;
  const idled = large.seconds / idle.seconds;
  const each = {
    service: (large.service - idle.service * idled) / transactions,
    postgres: Math.max(0, (large.postgres - idle.postgres * idled) / transactions),
  };
  return [
    microseconds('block with one transaction, service', small.service / BLOCKS),
    microseconds('block with one transaction, PostgreSQL', small.postgres / BLOCKS),
    microseconds('unwatched transaction, service', each.service),
    microseconds('unwatched transaction, PostgreSQL', each.postgres),
    {
      what: 'transactions a follower proves and stores when it catches up',
      unit: 'transactions a second',
      value: round(transactions / large.seconds),
    },
  ];
}

/** What a delivery queue leaves in the service, just after it has sent a webhook. */
async function measureQueues(stage: Stage, { received }: { received(): number }): Promise<Row[]> {
  const addresses = Array.from({ length: QUEUES }, (_, index) => addressOf(index));
  for (const [index, address] of addresses.entries()) await stage.watch(address, urlOf(stage, index));
  const beforeMiB = residentMiBOf(stage.pid);
  const until = received() + QUEUES;
  for (const address of addresses) await pay(stage, address);
  await stage.chain.mine();
  await waitUntil(() => received() >= until, { describe: 'the webhooks', timeoutMs: STORED_MS_MAX });
  const grownKiB = (residentMiBOf(stage.pid) - beforeMiB) * 1024;
  return [
    { what: 'delivery queue that sent just now', unit: 'KiB', value: round(grownKiB / QUEUES) },
    {
      what: 'connections to a receiver that answers',
      unit: 'sockets',
      value: round(stage.receiver.openCount() / QUEUES),
    },
  ];
}

/** Stops the service while large blocks are mined, so that it then follows them as fast as it can. */
async function catchUp(
  stage: Stage,
  {
    measure,
    caughtUp,
  }: { measure(work: () => Promise<void>): Promise<Cost & { seconds: number }>; caughtUp(): Promise<void> },
): Promise<Cost & { seconds: number }> {
  process.kill(stage.pid, 'SIGSTOP');
  try {
    await mineBlocks(stage, LARGE_BLOCKS, TRANSACTIONS_OF_BLOCK);
  } finally {
    process.kill(stage.pid, 'SIGCONT');
  }
  return measure(caughtUp);
}

const FIRST_ADDRESS = 2n ** 140n;
const addressOf = (index: number): Address =>
  `0x${(FIRST_ADDRESS + BigInt(index)).toString(16).padStart(40, '0')}`;

/** A separate origin for each address. The receiver listens on all of 127.0.0.0/8. */
const urlOf = ({ receiver }: Stage, index: number): string =>
  `http://127.1.${Math.floor(index / 250)}.${1 + (index % 250)}:${receiver.port}/hook`;

/** Sends transactions to unwatched addresses, so many in each block. */
async function mineBlocks(stage: Stage, blocks: number, transactions: number): Promise<void> {
  await stage.chain.pauseMining();
  for (let block = 0; block < blocks; block += 1) {
    const from = stage.chain.accounts.slice(0, Math.min(SENDERS, transactions));
    await Promise.all(
      from.map(async (sender, place) => {
        for (let sent = place; sent < transactions; sent += from.length)
          await pay(stage, addressOf(1_000_000 + sent), sender);
      }),
    );
    await stage.chain.mine();
  }
}

const pay = ({ chain }: Stage, to: Address, from: Address = chain.accounts[0]) =>
  chain.send({ from, to, valueWei: 1n, gas: GAS_OF_TRANSFER });

async function waitForHead({ chain }: Stage, database: Database): Promise<void> {
  const { number } = await chain.head();
  const isStored = async () => {
    const rows = await database.query(sql`select from block where number >= ${number}::bigint limit 1`);
    return rows.length > 0;
  };
  await waitUntil(isStored, { describe: 'the head to be stored', timeoutMs: STORED_MS_MAX });
}

/** Reads one watched address after the other with its key, which no cache answers. */
async function readMany({ apiUrl, key }: Stage): Promise<void> {
  const path = `${apiUrl}/api/notifications/watched-addresses`;
  const headers = { authorization: `Bearer ${key}` };
  const read = async (url: string) => {
    const response = await fetch(url, { headers });
    if (!response.ok) throw new Error(`${url} answered ${response.status}`);
    return response.json() as Promise<{ data: { id: string }[] }>;
  };
  const { data } = await read(`${path}?limit=100`);
  const reader = async () => {
    for (let index = 0; index < READS / READERS; index += 1)
      await (await fetch(`${path}/${data[index % data.length]?.id}`, { headers })).arrayBuffer();
  };
  await Promise.all(Array.from({ length: READERS }, reader));
}

/** The process that started the backends of this server. */
async function findServer(database: Database): Promise<number> {
  const [row] = await database.query<{ pid: number }>(sql`select pg_backend_pid() as pid`);
  const status = readFileSync(`/proc/${row?.pid}/status`, 'utf8');
  return Number(/^PPid:\s+(\d+)/m.exec(status)?.[1]);
}

/** Bytes of a table with its partitions and indexes. */
async function sizeOf(database: Database, table: string): Promise<number> {
  const [row] = await database.query<{ bytes: number }>(sql`
    select coalesce(sum(pg_total_relation_size(relid)), pg_total_relation_size(${table}::regclass))::bigint as bytes
    from pg_partition_tree(${table}::regclass)`);
  return Number(row?.bytes);
}

async function countConnections(database: Database): Promise<number> {
  const [row] = await database.query<{ count: number }>(sql`
    select count(*)::integer as count from pg_stat_activity
    where application_name = 'chainbell' and datname = current_database() and pid <> pg_backend_pid()`);
  return row?.count ?? 0;
}

const microseconds = (what: string, seconds: number): Row => ({
  what,
  unit: 'microseconds',
  value: round(seconds * 1e6),
});

const round = (value: number): number => Number(value.toFixed(1));
