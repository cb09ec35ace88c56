/**
 * /status and /readyz of a follower with real storage, whose scripted nodes go back, stay behind, fall silent or change
 * their chain.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { StatusBody } from '../../../src/api/ops/status-body.ts';
import { createStatus } from '../../../src/app/status.ts';
import type { NodesOptions } from '../../../src/chain/nodes/nodes.ts';
import { LASTING_MS } from '../../../src/chain/nodes/progress.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { Fault } from '../../../src/core/fault.ts';
import { silentLog } from '../../../src/core/log.ts';
import { createFollower } from '../../../src/ingest/follow.ts';
import { extractNothing } from '../../../src/ingest/read-block.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createWriteHealth } from '../../../src/store/db/write-health.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { noChecks } from '../../kit/follower.ts';
import { type NodesStage, withNodes } from '../../kit/nodes.ts';
import { chainMethods, makeHash, makeNodeBlock, type NodeBlock } from '../../kit/scripted-node.ts';
import { waitUntil } from '../../kit/wait.ts';

const { signal } = new AbortController();
const config = loadConfig({ env: { CHAINBELL_CHAIN_ID: '1', CHAINBELL_CHAIN_RPC: 'http://127.0.0.1:1' } });
/** Polls every five seconds, for longer than a normal lag lasts. */
const [POLL_MS, POLLS] = [5_000, LASTING_MS / 5_000 + 1];

/** Blocks up to this one; another branch above `leavesAt`. */
const chainTo = (head: number, leavesAt = head, branch = 1): NodeBlock[] =>
  Array.from({ length: head + 1 }, (_, number) => {
    const node = makeNodeBlock(number, { branch: number > leavesAt ? branch : 0, transactions: 0 });
    if (number === leavesAt + 1) node.block.parentHash = makeHash(0, leavesAt, 0);
    return node;
  });
const foreignTo = (head: number): NodeBlock[] =>
  Array.from({ length: head + 1 }, (_, number) => makeNodeBlock(number, { branch: 9, transactions: 0 }));

type Stage = Pick<NodesStage, 'scripted' | 'clock' | 'metrics'> & {
  /** The chains of the nodes, to be replaced. */
  serve(chain: NodeBlock[], ...nodes: number[]): void;
  /** Polls this many times, with a pause before each. */
  poll(times?: number): Promise<void>;
  status(): Promise<StatusBody>;
  /** What the heartbeat says of following. */
  report: ReturnType<typeof createStatus>['follower'];
  nodesCheck(): Promise<unknown>;
  refreshMetrics(): Promise<void>;
  /** From now on no statement is answered, and each fails with this error. */
  breakDatabase(error?: Error): void;
  countStatements(): number;
  /** What /status reported as bugs. */
  bugs: [error: unknown, others: number][];
};

function withFollower(
  database: Database,
  nodeCount: number,
  work: (stage: Stage) => Promise<void>,
  options: Partial<NodesOptions> = {},
): Promise<void> {
  const chains = Array.from({ length: nodeCount }, () => chainTo(9));
  return withNodes(
    chains.map((chain) => chainMethods(1, chain)),
    async ({ scripted, nodes, clock, metrics }) => {
      const follower = createFollower({
        ...{ database, nodes, clock, log: silentLog(), metrics, chainId: 1, startBlock: 1 },
        ...{ confirmations: 0, finalityDepth: 64, processors: [], extract: extractNothing },
        ...{ backfill: { advance: () => false }, checks: noChecks, isLeader: async () => true },
      });
      const writes = createWriteHealth(database, clock);
      let broken: Error | undefined;
      let statements = 0;
      const bugs: Stage['bugs'] = [];
      const seen: Database = {
        ...database,
        query(statement) {
          statements += 1;
          return broken === undefined ? database.query(statement) : Promise.reject(broken);
        },
      };
      const chain = { ...config.chain, rpc: scripted.map(({ url }) => url) };
      const status = createStatus({
        onBug: (error, others) => bugs.push([error, others]),
        ...{
          version: '0',
          config: { ...config, chain },
          database: seen,
          nodes,
          proof: undefined,
          writes,
          clock,
          metrics,
        },
        recentStep: () => undefined,
      });
      const step = status.watch(follower.step);
      const poll = async (times = 1) => {
        for (let time = 0; time < times; time += 1) {
          clock.advance(POLL_MS);
          await step(signal).catch((error: unknown) => assert.ok(error instanceof Fault, String(error)));
        }
      };
      await poll(3);
      assert.equal((await status.status()).cursor?.number, 9);
      await work({
        countStatements: () => statements,
        ...{ scripted, clock, metrics, poll, bugs, status: status.status, report: status.follower },
        serve(chain, ...which) {
          const chosen = which.length === 0 ? chains : chains.filter((_, index) => which.includes(index));
          for (const one of chosen) one.splice(0, one.length, ...chain);
        },
        breakDatabase(error = new Fault('unavailable', 'database: connection refused')) {
          broken = error;
        },
        nodesCheck: async () => (await status.checks()).nodes,
        refreshMetrics: status.refreshMetrics,
      });
    },
    { internalTransfers: 'off', ...options },
  );
}

const statesOf = ({ nodes }: StatusBody) => nodes.map(({ state }) => state);

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a head that falls back on the stored chain is shown, and becomes a problem once it stays there', () =>
    withFollower(database(), 3, async ({ serve, poll, status, clock, metrics }) => {
      serve(chainTo(6));
      await poll();
      const since = clock.now().toISOString();
      const first = await status();
      assert.deepEqual([first.chain.head, first.lag_blocks, first.lag_seconds], [6, 0, 0]);
      assert.deepEqual([first.state, first.problem], ['ok', null], 'a moment is normal');
      await poll(POLLS);
      const { chain, state, problem } = await status();
      assert.deepEqual([chain.head, state, problem?.since], [6, 'holding', since]);
      assert.match(
        problem?.message ?? '',
        /^the nodes are at block 6, and block 9 is stored: .* check why they went back, or add a node to chain.rpc/,
      );
      serve(chainTo(10));
      await poll();
      const { state: after, cursor } = await status();
      assert.deepEqual([after, cursor?.number], ['ok', 10]);
      assert.equal((await metrics.chainHeld.get()).values[0]?.value, 0);
    }));

  test('while all nodes name the same block for twenty block times, /status and the heartbeat say that the chain stands still', () =>
    withFollower(database(), 3, async ({ serve, poll, status, report, clock }) => {
      const since = clock.now();
      await database().query(
        sql`update block set mined_at = ${since}::timestamptz - (9 - number) * interval '500 s', stored_at = ${since}`,
      );
      await poll();
      assert.equal((await status()).state, 'ok');
      clock.advance(20 * 500_000);
      await poll();
      const { state, problem } = await status();
      assert.deepEqual([state, problem?.since], ['degraded', since.toISOString()]);
      assert.match(
        problem?.message ?? '',
        /^the chain stands still: .* no block above 9, .* one every 500 s/,
      );
      assert.equal((await report())?.problem?.message, problem?.message);
      serve(chainTo(10));
      await poll();
      assert.equal((await status()).state, 'ok');
    }));

  test('while no node gives the next block, the gauges show the head and a lag that grows', () =>
    withFollower(database(), 1, async ({ serve, scripted, poll, status, clock, metrics, refreshMetrics }) => {
      const mined = clock.now();
      await database().query(sql`update block set mined_at = ${mined}`);
      serve(chainTo(12));
      const [node] = scripted;
      const give = node?.methods.eth_getBlockReceipts;
      assert.ok(node !== undefined && give !== undefined);
      node.methods.eth_getBlockReceipts = () => {
        throw new Error('missing trie node');
      };
      await poll(20);
      await refreshMetrics();
      const { lag_blocks, lag_seconds, state } = await status();
      assert.deepEqual([lag_blocks, lag_seconds, state], [3, 100, 'degraded']);
      const lag = async () => (await metrics.chainLagSeconds.get()).values[0]?.value;
      assert.equal(await lag(), 100);
      assert.match(await metrics.registry.metrics(), /chain_block_number\{stage="head"\} 12\n/);
      node.methods.eth_getBlockReceipts = give;
      await poll(5);
      assert.deepEqual([(await status()).lag_blocks, await lag()], [0, 0]);
    }));

  test('a load balancer with a lagging back end changes only the head', () =>
    withFollower(database(), 1, async ({ serve, poll, status }) => {
      for (let time = 0; time < POLLS; time += 1) {
        serve(chainTo(time % 3 === 2 ? 9 : 5));
        await poll();
        assert.deepEqual([(await status()).state, (await status()).lag_blocks], ['ok', 0]);
      }
    }));

  test('a node that stays behind is shown as behind, does not count as working, and recovers', () =>
    withFollower(database(), 3, async ({ serve, poll, status, nodesCheck }) => {
      serve(chainTo(12), 0, 1);
      await poll(2);
      assert.deepEqual(statesOf(await status()), ['ok', 'ok', 'ok'], 'a moment is normal');
      await poll(POLLS);
      const { nodes, state, chain } = await status();
      assert.deepEqual([state, chain.head], ['ok', 12]);
      assert.deepEqual(
        nodes.map((node) => [node.state, node.blocks_behind]),
        [
          ['ok', null],
          ['ok', null],
          ['behind', 3],
        ],
      );
      assert.deepEqual(await nodesCheck(), {
        ok: true,
        message: `2 of 3 work: ${nodes[2]?.name} is 3 blocks behind`,
      });
      serve(chainTo(12), 2);
      await poll();
      assert.deepEqual(statesOf(await status()), ['ok', 'ok', 'ok']);
    }));

  test('a single node far ahead does not make others count as behind, and is a problem while the head stands still', () =>
    withFollower(database(), 3, async ({ serve, poll, status }) => {
      serve([...chainTo(9), makeNodeBlock(1_000_000)], 0);
      await poll(2);
      assert.equal((await status()).state, 'ok', 'a moment is normal');
      await poll(POLLS);
      const { nodes, state, chain, problem } = await status();
      assert.deepEqual(statesOf(await status()), ['ok', 'ok', 'ok']);
      assert.deepEqual([state, chain.head], ['degraded', 9]);
      assert.equal(
        problem?.message,
        `the head has stayed at block 9, which 2 of 3 nodes name, while ${nodes[0]?.name} names block 1000000: if the chain is there, repair or replace the other nodes; if not, this one`,
      );
      serve(chainTo(10), 1, 2);
      await poll();
      assert.deepEqual([(await status()).state, (await status()).chain.head], ['ok', 10]);
    }));

  for (const nodeCount of [1, 3])
    test(`while ${nodeCount === 1 ? 'the only node takes' : 'all nodes take'} requests and never answer, the state is holding before they time out`, () =>
      withFollower(database(), nodeCount, async ({ scripted, poll, status, clock }) => {
        const counts = scripted.map((node) => node.exchangeCount());
        for (const node of scripted) node.setHttp('hang');
        const asking = poll();
        await waitUntil(() =>
          scripted.every((node, index) => node.exchangeCount() > (counts[index] ?? Infinity)),
        );
        const since = clock.now().toISOString();
        assert.equal((await status()).state, 'ok', 'a moment is normal');
        clock.advance(6_000);
        const { state, problem, nodes } = await status();
        assert.deepEqual([state, problem?.since], ['holding', since]);
        for (const { name, vote } of nodes) {
          assert.ok(problem?.message.includes(`${name} gives no vote (no answer; its last block was 9)`));
          assert.equal(vote, null);
        }
        asking.catch(() => {});
      }));

  test('while the database cannot be read, nodes are still shown and the problem names the database', () =>
    withFollower(database(), 1, async ({ status, breakDatabase }) => {
      breakDatabase();
      const { state, problem, cursor, queue, nodes, chain } = await status();
      assert.deepEqual([state, cursor, queue, chain.head, nodes.length], ['degraded', null, null, 9, 1]);
      assert.match(
        problem?.message ?? '',
        /^database: .*check that the database runs, and check database.url$/,
      );
    }));

  test('requests for /status at the same time share one reading', () =>
    withFollower(database(), 1, async ({ status, countStatements }) => {
      const read = async (requests: number) => {
        const before = countStatements();
        await Promise.all(Array.from({ length: requests }, () => status()));
        return countStatements() - before;
      };
      const one = await read(1);
      assert.ok(one > 0);
      assert.equal(await read(20), one);
    }));

  test('a statement of /status that fails because of a bug is reported once a minute, and the rest is shown', () =>
    withFollower(database(), 1, async ({ status, breakDatabase, bugs, clock }) => {
      const bug = new Error('relation "price" does not exist');
      breakDatabase(bug);
      const { state, problem, cursor, nodes } = await status();
      assert.deepEqual([state, cursor, nodes.length], ['degraded', null, 1]);
      assert.match(problem?.message ?? '', /^a bug: .*\(status\.bug\)/);
      assert.deepEqual(bugs, [[bug, 0]]);
      for (let time = 0; time < 3; time += 1) await status();
      assert.equal(bugs.length, 1);
      clock.advance(60_000);
      await status();
      // Without a newest block, each status tries to read it once more for the trouble of following.
      assert.deepEqual(bugs[1], [bug, 1 + 3 * 2]);
    }));

  test('if one of two nodes is stuck, following stops and the problem names that node', () =>
    withFollower(database(), 2, async ({ serve, poll, status }) => {
      serve(chainTo(12), 0);
      await poll(POLLS + 1);
      const { nodes, state, problem } = await status();
      assert.deepEqual([state, nodes[1]?.state, nodes[1]?.blocks_behind], ['holding', 'behind', 3]);
      assert.equal(
        problem?.message,
        `no 2 of 2 nodes name a block above 9: ${nodes[1]?.name} is at block 9, 3 behind. Repair or replace the nodes that are behind`,
      );
      serve(chainTo(13));
      await poll();
      assert.deepEqual([(await status()).state, (await status()).cursor?.number], ['ok', 13]);
    }));

  for (const nodeCount of [1, 3])
    test(`while ${nodeCount === 1 ? 'the only node is' : 'all nodes are'} down, the state is holding, with what to do`, () =>
      withFollower(database(), nodeCount, async ({ scripted, poll, status, nodesCheck }) => {
        for (const node of scripted) node.setHttp('reset');
        await poll(2);
        const { chain, state, problem, nodes } = await status();
        assert.deepEqual([state, chain.head], ['holding', 9]);
        assert.match(
          problem?.message ?? '',
          nodeCount === 1
            ? /^chain\.rpc\[\d\] gives no vote \(.*; its last block was 9\)\. Following resumes as soon as it answers: check that it runs/
            : /^no 2 of 3 nodes name the same block: .*; repair or replace the nodes that are wrong or silent$/,
        );
        for (const { name } of nodes) assert.ok(problem?.message.includes(name));
        assert.equal(((await nodesCheck()) as { ok: boolean }).ok, false);
        for (const node of scripted) node.setHttp(undefined);
        await poll(7);
        assert.equal((await status()).state, 'ok');
      }));

  for (const [where, head] of [
    ['below the tip', 6],
    ['at the tip', 9],
    ['above the tip', 12],
    ['far above', 5_000],
  ] as const)
    test(`when all nodes change to another chain whose head is ${where}, it is named and never shown as the head`, () =>
      withFollower(database(), 3, async ({ serve, poll, status }) => {
        serve(head < 5_000 ? foreignTo(head) : [...foreignTo(3), makeNodeBlock(head, { branch: 9 })]);
        for (let time = 0; time < 4; time += 1) {
          await poll();
          const { chain, cursor, nodes, problem, ...rest } = await status();
          assert.deepEqual([chain.head, cursor?.number, rest.state], [9, 9, 'holding']);
          assert.deepEqual(
            nodes.map((node) => [node.state, node.head]),
            Array.from({ length: 3 }, () => ['wrong_chain', 9]),
          );
          assert.match(
            problem?.message ?? '',
            new RegExp(
              `another genesis block \\(${makeHash(9, 0, 0)}\\) than ${makeHash(0, 0, 0)}, which is followed: remove it`,
            ),
          );
        }
        serve(chainTo(10));
        await poll(7);
        assert.deepEqual([(await status()).state, (await status()).cursor?.number], ['ok', 10]);
      }));

  test('on a chain so fast that heads do not link, a foreign head is dropped as soon as it is detected', () =>
    withFollower(database(), 3, async ({ serve, poll, status }) => {
      serve(chainTo(12));
      await poll();
      serve(foreignTo(15));
      await poll(3);
      const { chain, nodes, state, problem } = await status();
      assert.deepEqual([chain.head, state], [12, 'holding']);
      assert.deepEqual(
        nodes.map((node) => [node.state, node.head]),
        Array.from({ length: 3 }, () => ['wrong_chain', null]),
      );
      assert.match(problem?.message ?? '', /another genesis block/);
    }));

  test('nodes that serve a lower branch are shown as disagreeing', () =>
    withFollower(database(), 3, async ({ serve, poll, status, nodesCheck }) => {
      serve(chainTo(7, 3));
      await poll(2);
      const { chain, state, nodes } = await status();
      assert.deepEqual([chain.head, state], [7, 'holding']);
      assert.deepEqual(
        nodes.map((node) => [node.state, node.disagreement?.number]),
        Array.from({ length: 3 }, () => ['disagrees', 4]),
      );
      assert.equal(((await nodesCheck()) as { ok: boolean }).ok, false);
      serve(chainTo(10, 3));
      await poll(2);
      assert.deepEqual([(await status()).state, (await status()).cursor?.number], ['ok', 10]);
      assert.deepEqual(statesOf(await status()), ['ok', 'ok', 'ok']);
    }));

  test('nodes on a lower branch close to the tip are shown as disagreeing once that lasts', () =>
    withFollower(database(), 1, async ({ serve, poll, status }) => {
      serve(chainTo(8, 7));
      await poll(2);
      assert.deepEqual([(await status()).state, ...statesOf(await status())], ['holding', 'ok']);
      assert.match((await status()).problem?.message ?? '', /^the node is at block 8 /);
      await poll(POLLS);
      assert.deepEqual(statesOf(await status()), ['disagrees']);
      serve(chainTo(10));
      await poll(2);
      assert.deepEqual([(await status()).state, ...statesOf(await status())], ['ok', 'ok']);
    }));
});
