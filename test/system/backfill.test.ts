/**
 * A backfill of some thousand blocks by the real program. It can stop and continue anywhere, waits for nodes that limit it,
 * says what to do if they have pruned, and draws its bar on a terminal.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { after, before } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { Address, Hash } from '../../src/core/hex.ts';
import { silentLog } from '../../src/core/log.ts';
import { sql } from '../../src/store/db/sql.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { sampledKinds } from '../kit/each-database.ts';
import { startProgram } from '../kit/program.ts';
import { type Answer, startReceiver } from '../kit/receiver.ts';
import { sampledTest } from '../kit/sample.ts';
import type { Json } from '../kit/scripted-node.ts';
import { CHAIN_ID, createWatcher, freshAddress, startTestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const test = sampledTest(import.meta.url, { shares: 2 });

const PAYMENTS = 30;
const BLOCKS_BETWEEN = 40;

const parts = new AsyncDisposableStack();
let chain: Chain;
let address: Address;
const hashes: Hash[] = [];

before(async () => {
  chain = parts.use(await startChain());
  address = freshAddress();
  for (let paid = 1; paid <= PAYMENTS; paid += 1) {
    const payment = { from: chain.accounts[1], to: address, valueWei: BigInt(paid) };
    hashes.push((await chain.transferNative(payment)).hash);
    await chain.mine(BLOCKS_BETWEEN);
  }
});
after(() => parts.disposeAsync());

/** A port where nothing listens, because these tests compare only the stored notifications. */
const nowhere = { port: 1 };

async function watchAhead(database: TestDatabase): Promise<{ id: string }> {
  await using service = await startTestService({ database, rpc: [chain.url], roles: ['api'] });
  const watcher = await createWatcher(service, 'acme');
  return await watcher.watch({ address, webhookUrl: 'https://one.example/hook' });
}

/** Follows to the head. Then every block from 1 on is stored once, and each payment has one notification, in order. */
async function assertWhole(database: TestDatabase, record: { id: string }, rpc = chain.url): Promise<void> {
  const options = { database, rpc: [rpc], roles: ['follower'] as const, chain: { startBlock: 1 } };
  await using service = await startTestService(options);
  await service.inSync(chain);
  const rows = await service.notifications({ record });
  assert.deepEqual(
    rows.map(({ tx_hash }) => tx_hash),
    hashes,
  );
  const { number: head } = await chain.head();
  const stored = await service.database.query(
    sql`select count(*)::int as count, min(number)::int as first, max(number)::int as last from block`,
  );
  assert.deepEqual(stored, [{ count: head, first: 1, last: head }]);
}

for (const kind of sampledKinds(import.meta.url)) {
  test(`a backfill that is stopped and killed again and again loses no transfer and sends none twice (${kind})`, async () => {
    await using database = await createTestDatabase(kind);
    const record = await watchAhead(database);
    const { number: head } = await chain.head();
    for (const [signal, height] of [
      ['SIGTERM', 300],
      ['SIGKILL', 500],
      ['SIGINT', 700],
      ['SIGKILL', 900],
    ] as const) {
      await using node = await startNode(({ body }) => {
        const asked = [...body.matchAll(/"eth_getBlockByNumber","params":\["(0x[0-9a-f]+)"/g)].map(
          ([, number]) => Number(number),
        );
        if (asked.some((number) => number >= height && number < height + 100)) program.child.kill(signal);
        return undefined;
      });
      const program = startProgram({
        ...{ database, rpc: [node.url], startBlock: 1, receiver: nowhere },
        ...{ roles: ['follower'], internalTransfers: 'off' },
      });
      await program.ended;
      const { exitCode, signalCode } = program.child;
      assert.deepEqual(
        [exitCode, signalCode],
        signal === 'SIGKILL' ? [null, signal] : [0, null],
        program.log,
      );
      // The start may be missing in the log, because this can happen before the first commit.
      assert.doesNotMatch(program.log, /backfill.done/);
    }
    const between = await database.open();
    const [tip] = await between.query(sql`select max(number)::int as number from block`);
    assert.ok(
      Number(tip?.number) > 1 && Number(tip?.number) < head,
      `block ${String(tip?.number)} of ${head}`,
    );
    await between.close();
    await assertWhole(database, record);
  });
}

test('the follower waits for a node that limits requests during a backfill', async () => {
  await using database = await createTestDatabase('postgres');
  const record = await watchAhead(database);
  let limitedCount = 0;
  await using node = await startNode(({ index }) => {
    if (index < 20 || index > 24) return undefined;
    limitedCount += 1;
    return { status: 429, headers: { 'retry-after': '1' }, body: 'slow down' };
  });
  await assertWhole(database, record, node.url);
  assert.ok(limitedCount > 0);
});

for (const [what, prune, reason, internalTransfers] of [
  ['blocks', pruneBlocks, /does not have block 1\./, 'off'],
  ['receipts', pruneReceipts, /pruned history unavailable \(4444\)\./, 'off'],
  ['traces', pruneTraces, /could not trace 0x\w{64}: missing trie node\./, 'auto'],
] as const) {
  test(`a node that has pruned its old ${what} is reported with advice, and is asked again and again`, async () => {
    await using database = await createTestDatabase('postgres');
    let isPruned = true;
    await using node = await startNode(
      () => undefined,
      (call, answer) => (isPruned ? prune(call, answer) : answer),
    );
    await using service = await startTestService({
      ...{ database, rpc: [node.url], roles: ['follower', 'api'] },
      chain: { startBlock: 1, internalTransfers },
    });
    const problem = await waitUntil(async () => {
      const status: unknown = await (await fetch(`${service.apiUrl}/status`)).json();
      return (status as { problem: { message: string } | null }).problem?.message;
    });
    const { number: head } = await chain.head();
    assert.match(problem, new RegExp(`^no node gives block 1, ${head - 1} below the head: `));
    assert.match(problem, reason);
    assert.match(
      problem,
      /add a node to chain\.rpc that keeps all history .*, or set a later chain\.startBlock$/,
    );
    isPruned = false;
    await service.inSync(chain);
  });
}

test('the follower waits for a start block above the head, and logs that once', async () => {
  await using database = await createTestDatabase('postgres');
  await using own = await startChain();
  const log = silentLog();
  const told: unknown[] = [];
  log.warn = (fields: object, event?: string) => {
    if (event === 'follow.waits_for_start') told.push(fields);
  };
  await using service = await startTestService({
    ...{ database, rpc: [own.url, own.wsUrl], roles: ['follower'], log },
    chain: { startBlock: 5 },
  });
  await waitUntil(() => told.length > 0);
  for (let mined = 1; mined <= 6; mined += 1) await own.mine();
  await service.inSync(own);
  assert.deepEqual(told, [{ startBlock: 5, head: 0 }]);
  const [first] = await service.database.query(sql`select min(number)::int as number from block`);
  assert.deepEqual(first, { number: 5 });
});

const hasTerminal =
  spawnSync('script', ['--version'], { encoding: 'utf8' }).stdout?.includes('util-linux') === true;

test('on a terminal a backfill is a bar below the log, and Ctrl-C leaves no unfinished line', {
  skip: hasTerminal ? false : 'script of util-linux is not here',
}, async () => {
  await using database = await createTestDatabase('postgres');
  const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
  const child: ChildProcess = spawn(
    'script',
    ['-qec', `exec '${process.execPath}' '${main}' start --role follower`, '/dev/null'],
    {
      cwd: database.dataDir,
      env: {
        ...{
          PATH: process.env.PATH,
          NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
          TERM: 'xterm',
          CHAINBELL_CHAIN_ID: String(CHAIN_ID),
          CHAINBELL_CHAIN_RPC: chain.url,
        },
        ...{
          CHAINBELL_CHAIN_START_BLOCK: '1',
          CHAINBELL_DATABASE_URL: database.url,
          CHAINBELL_METRICS_PORT: '0',
        },
        ...{ CHAINBELL_SECRET: Buffer.alloc(32, 7).toString('base64') },
      },
      stdio: 'pipe',
    },
  );
  let shown = '';
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    const hadBar = shown.includes('backfill [');
    shown += text;
    // Ctrl-C, sent through the terminal.
    if (!hadBar && shown.includes('backfill [')) child.stdin?.write('\u0003');
  });
  const [code] = await once(child, 'close');
  assert.equal(code, 0, shown);
  assert.match(shown, /backfill \[[#-]+\] \d+\.\d %/);
  // After the last line of the log there is only an erased line.
  const last = shown.split('\n').at(-1) ?? '';
  assert.equal(last.split('\r\u001B[K').at(-1), '', JSON.stringify(last));
});

type Call = { method: string; params: unknown[] };

/** A proxy of the chain's node that can replace the answer to the n-th request, and change each answer. */
async function startNode(
  instead: (request: { index: number; body: string }) => Answer | undefined,
  change: (call: Call, answer: Json) => Json = (_, answer) => answer,
) {
  const headers = { 'content-type': 'application/json' };
  const proxy = await startReceiver({
    async answer({ body }, index) {
      const refusal = instead({ index, body });
      if (refusal !== undefined) return refusal;
      const answers = await (await fetch(chain.url, { method: 'POST', headers, body })).json();
      const calls: Call | Call[] = JSON.parse(body);
      const changed = Array.isArray(calls)
        ? calls.map((call, place) => change(call, (answers as Json[])[place] ?? {}))
        : change(calls, answers as Json);
      return { headers, body: JSON.stringify(changed) };
    },
  });
  return { ...proxy, url: `http://127.0.0.1:${proxy.port}` };
}

/** Blocks below 1,000, requested by number, as history is. The genesis block stays. */
const isOld = ([reference]: unknown[]) =>
  typeof reference === 'string' && Number(reference) > 0 && Number(reference) < 1_000;

function pruneBlocks({ method, params }: Call, answer: Json): Json {
  return method === 'eth_getBlockByNumber' && isOld(params) ? { ...answer, result: null } : answer;
}

function pruneReceipts({ method, params }: Call, { jsonrpc, id, ...answer }: Json): Json {
  if (method !== 'eth_getBlockReceipts' || !isOld(params)) return { jsonrpc, id, ...answer };
  return { jsonrpc, id, error: { code: 4_444, message: 'pruned history unavailable' } };
}

/** As anvil answers, and geth for single transactions. It calls itself geth, because anvil is asked for `trace_block`. */
function pruneTraces({ method }: Call, answer: Json): Json {
  if (method === 'web3_clientVersion') return { ...answer, result: 'Geth/v1.16.0' };
  if (!method.startsWith('debug_traceBlock') || !Array.isArray(answer.result)) return answer;
  const traces: Json[] = answer.result;
  return { ...answer, result: traces.map(({ txHash }) => ({ txHash, error: 'missing trie node' })) };
}
