/**
 * Verifying with nodes that do not give a block, or not yet, and beside a follower that handles a reorg.
 */
import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import type { Difference } from '../../src/audit/compare.ts';
import { type VerifyOptions, verifyStored } from '../../src/audit/verify.ts';
import type { BundleTransaction } from '../../src/chain/blocks/bundle.ts';
import type { Clock } from '../../src/core/clock.ts';
import { decimal } from '../../src/core/decimal.ts';
import { Fault } from '../../src/core/fault.ts';
import { toBytes } from '../../src/core/hex.ts';
import type { BlockHeader, BlockReference } from '../../src/domain/block.ts';
import { commitBlocks, findTip, insertChain } from '../../src/store/blocks/blocks.ts';
import type { Database } from '../../src/store/db/db.ts';
import { type Sql, sql } from '../../src/store/db/sql.ts';
import { followPairs } from '../../src/store/market/pairs.ts';
import { insertRound } from '../../src/store/prices/price-rounds.ts';
import { raisePruneMark } from '../../src/store/retention/prune-marks.ts';
import { hashOf, headerOf, later, noon, watchAddress } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { pair as swapped, swapTransaction } from '../kit/pair-story.ts';

const noRules = { listeners: [], accruals: new Map(), referral: undefined };
const BLOCKS = 12;
const FINAL = 4;
/** Waits before a missing block is requested again, and before blocks that differ are compared again. */
const RETRIES_MS = [1_000, 2_000, 4_000];
const SETTLE_MS = 5_000;

type Nodes = VerifyOptions['nodes'];
/** The nodes' block at a height; undefined if they have none. Throws if they fail. */
type Chain = (number: number) => BlockHeader | undefined;

/** A payment to bob with a swap in the first block, and nothing else. */
function paid(reference: BlockReference): BundleTransaction[] {
  return reference === 1 ? [{ ...swapTransaction(1), value: 1n }] : [];
}

/** Nodes that give the blocks of this chain. */
function nodesOf(chain: Chain): Nodes {
  const find = async (reference: BlockReference) => chain(Number(reference));
  const get = async (reference: BlockReference) => {
    const header = await find(reference);
    if (header === undefined) throw new Fault('unavailable', `no node has block ${reference}`);
    return header;
  };
  const parts = { proved: true, traced: true };
  return {
    head: () => get(BLOCKS),
    agree: () => Promise.reject(new Fault('unavailable', 'no node knows a transaction')),
    findHeader: find,
    bundles: (references) =>
      Promise.all(
        references.map(async (one) => ({ header: await get(one), transactions: paid(one), ...parts })),
      ),
  };
}

const headers = Array.from({ length: BLOCKS }, (_, index) => headerOf(index + 1));

onSampledDatabase(import.meta.url, ({ database }) => {
  beforeEach(async () => {
    await insertChain(database(), 1, undefined);
    await commitBlocks(database(), {
      expectedTip: undefined,
      blocks: headers.map((header) => ({ header, proved: true, transfers: [] })),
      confirmations: 0,
      finalizedNumber: FINAL,
      now: later(60_000),
    });
  });

  const change = (number: number, fields: Sql) =>
    database().query(sql`update block set ${fields} where number = ${number}`);
  const otherHash = sql`hash = ${toBytes(hashOf(1))}`;
  const ownHash = (number: number) => sql`hash = ${toBytes(headerOf(number).hash)}`;

  /** `onWait` runs while verify waits. */
  async function verify(
    chain: Chain,
    { onWait = () => {}, ...more }: Partial<VerifyOptions> & { onWait?: () => unknown } = {},
  ) {
    const differences: string[] = [];
    const waitsMs: number[] = [];
    const clock: Clock = {
      ...createTestClock(),
      async wait(ms) {
        waitsMs.push(ms);
        await onWait();
      },
    };
    const options: VerifyOptions = {
      ...{ database: database(), nodes: nodesOf(chain), clock, isProofOn: true, pairs: [] },
      ...{ confirmations: 0, retryDelayMs: () => 60_000, witnesses: [], onDissent: () => {} },
      ...{ rules: noRules, quorum: 'auto', fedAssets: [] },
      ...{ from: undefined, to: BLOCKS, notificationsMs: 1, swapsMs: 1, onProgress: () => {} },
      onDifference: ({ kind, block }: Difference) => differences.push(`${kind} in ${block}`),
      ...more,
    };
    const report = await verifyStored(options, new AbortController().signal);
    return { report, differences, waitsMs };
  }

  test('prices of every feed are compared, also of an asset that values no pair', async () => {
    const [first, last] = [headerOf(1).minedAt, headerOf(BLOCKS).minedAt];
    const at = new Date((first.getTime() + last.getTime()) / 2);
    const said = { source: 'one', price: decimal('2'), conf: undefined, observedAt: at, message: undefined };
    const reports = [{ ...said, verdict: 'used' as const }];
    const round = { asset: 'BELL', at, reports, price: decimal('2'), isAgreed: false, isDisputed: false };
    await insertRound(database(), round, undefined);
    const fedAssets = ['BELL'];
    assert.deepEqual((await verify(headerOf, { fedAssets })).differences, []);
    await database().query(sql`update price set price = 3`);
    assert.deepEqual((await verify(headerOf, { fedAssets })).differences, [`changed in ${BLOCKS}`]);
  });

  test('verify waits only for the first block of a gap, and again for the next gap', async () => {
    const gaps = [3, 4, 5, 6, 9, 10];
    const { report, waitsMs } = await verify((number) =>
      gaps.includes(number) ? undefined : headerOf(number),
    );
    assert.deepEqual(waitsMs, [...RETRIES_MS, ...RETRIES_MS]);
    assert.deepEqual([report.blocks, report.undecided.not_served], [BLOCKS - 6, 6]);
  });

  test('blocks that no node serves are named with the reason, and the comparison is not called equal', async () => {
    const progress: Parameters<VerifyOptions['onProgress']>[0][] = [];
    const isServed = (number: number) => number === 1 || number === BLOCKS;
    const { report, differences } = await verify(
      (number) => (isServed(number) ? headerOf(number) : undefined),
      { onProgress: (one) => progress.push(one) },
    );
    assert.deepEqual([report.outcome, report.blocks, differences], ['not_compared', 2, []]);
    assert.deepEqual(
      report.uncompared.map(({ from, to, outcome }) => [from, to, outcome]),
      [[2, BLOCKS - 1, 'not_served']],
    );
    assert.notEqual(report.uncompared[0]?.reason, '');
    assert.deepEqual(progress.at(-1), {
      ...{ done: BLOCKS, total: BLOCKS, uncompared: BLOCKS - 2, differences: 0 },
    });
  });

  test('a block that becomes available during the wait is compared; after a single failure there is no wait', async () => {
    let failuresLeft = 1;
    const comes: Chain = (number) => {
      if (number !== 6 || failuresLeft === 0) return headerOf(number);
      failuresLeft -= 1;
      return undefined;
    };
    const once = await verify(comes);
    assert.deepEqual([once.report.blocks, once.waitsMs], [BLOCKS, []]);
    failuresLeft = 3;
    const thrice = await verify(comes);
    assert.deepEqual([thrice.report.blocks, thrice.waitsMs], [BLOCKS, RETRIES_MS.slice(0, 2)]);
  });

  test('verify ends at once if the nodes turn out to be on another chain', async () => {
    const conflict = new Fault('conflict', 'the node is on chain 4242');
    let waits = 0;
    const run = verify(
      (number) => {
        if (number === 6) throw conflict;
        return headerOf(number);
      },
      { onWait: () => (waits += 1) },
    );
    await assert.rejects(run, conflict);
    assert.equal(waits, 0);
  });

  test('a difference in final blocks is reported at once, and above them after a second look', async () => {
    await change(FINAL, otherHash);
    const final = await verify(headerOf);
    assert.deepEqual([final.differences, final.waitsMs], [[`hash in ${FINAL}`], []]);
    await change(FINAL + 1, otherHash);
    const both = await verify(headerOf);
    assert.deepEqual(both.differences, [`hash in ${FINAL}`, `hash in ${FINAL + 1}`]);
    assert.deepEqual([both.report.outcome, both.waitsMs], ['different', [SETTLE_MS]]);
  });

  test('a missing notification is reported unless notifications of its age are deleted, whatever the retention of swaps', async () => {
    await watchAddress(database());
    const { report, differences } = await verify(headerOf);
    assert.deepEqual([report.undecided.pruned, differences], [1, []]);
    const kept = await verify(headerOf, { notificationsMs: Date.now() });
    assert.deepEqual([kept.report.undecided.pruned, kept.differences], [0, ['missing in 1']]);
  });

  test('a missing swap is reported unless swaps of its age are deleted, whatever the retention of notifications', async () => {
    await database().transaction((tx) => followPairs(tx, [swapped], { header: headerOf(1), now: noon }));
    const { report, differences } = await verify(headerOf, { pairs: [swapped] });
    assert.deepEqual([report.undecided.pruned, differences], [1, []]);
    const kept = await verify(headerOf, { pairs: [swapped], swapsMs: Date.now() });
    assert.deepEqual([kept.report.undecided.pruned, kept.differences], [0, ['missing in 1']]);
  });

  test('what retention has deleted is not missing, also with a longer retention now or a clock that was ahead', async () => {
    await watchAddress(database());
    await database().transaction((tx) => followPairs(tx, [swapped], { header: headerOf(1), now: noon }));
    for (const kind of ['notification', 'swap', 'pair_state'] as const)
      await raisePruneMark(database(), kind, later(120_000));
    const kept = { pairs: [swapped], notificationsMs: Date.now(), swapsMs: Date.now() };
    const { report, differences } = await verify(headerOf, kept);
    assert.deepEqual([report.undecided.pruned, differences], [2, []]);
  });

  test('a missing notification is not reported if a reorg may have moved it to its block before retention deleted it', async () => {
    await watchAddress(database());
    await raisePruneMark(database(), 'notification', noon);
    const judge = async () => {
      const { report, differences } = await verify(headerOf, { notificationsMs: Date.now() });
      return [report.undecided.pruned, differences];
    };
    const mineAgain = async (now: Date) =>
      commitBlocks(database(), {
        expectedTip: await findTip(database()),
        blocks: headers.map((header) => ({ header, proved: true, transfers: [] })),
        ...{ confirmations: 0, finalizedNumber: FINAL, now, reorg: { ancestorNumber: 0 } },
      });
    assert.deepEqual(await judge(), [0, ['missing in 1']]);
    await mineAgain(later(120_000));
    assert.deepEqual(await judge(), [1, []]);
    await mineAgain(later(86_400_000));
    assert.deepEqual(await judge(), [0, ['missing in 1']]);
  });

  test('what retention deletes during a comparison is not missing', async () => {
    await watchAddress(database());
    let comparisons = 0;
    const overtaken: Database = {
      ...database(),
      async transaction(work) {
        const result = await database().transaction(work);
        comparisons += 1;
        if (comparisons === 1) await raisePruneMark(database(), 'notification', later(120_000));
        return result;
      },
    };
    const { report, differences } = await verify(headerOf, {
      ...{ database: overtaken, notificationsMs: Date.now() },
    });
    assert.deepEqual([report.undecided.pruned, differences], [1, []]);
  });

  // The first block is requested alone, the two after it together.
  const pair = { from: BLOCKS - 2, first: BLOCKS - 1, second: BLOCKS };

  test('several blocks that still differ at the second look are all reported', async () => {
    const { from, first, second } = pair;
    for (const number of [first, second]) await change(number, otherHash);
    const { differences, waitsMs } = await verify(headerOf, { from });
    assert.deepEqual([differences, waitsMs], [[`hash in ${first}`, `hash in ${second}`], [SETTLE_MS]]);
  });

  test('if one of several blocks matches at the second look, a reorg is under way, and none is a difference', async () => {
    const { from, first, second } = pair;
    for (const settled of [first, second]) {
      for (const number of [first, second]) await change(number, otherHash);
      const onWait = () => change(settled, ownHash(settled));
      const { report, differences, waitsMs } = await verify(headerOf, { from, onWait });
      assert.deepEqual([report.outcome, differences, waitsMs], ['reorganised', [], [SETTLE_MS]]);
    }
  });

  test('a block that is stored by the second look is no difference', async () => {
    const { from, first } = pair;
    await change(first, sql`number = ${BLOCKS + 1}`);
    const onWait = () => change(BLOCKS + 1, sql`number = ${first}`);
    const { report, differences } = await verify(headerOf, { from, onWait });
    assert.deepEqual([report.outcome, differences], ['reorganised', []]);
  });

  test('a block that the nodes no longer have at the second look, or have replaced, is part of a reorg', async () => {
    const { from, first, second } = pair;
    for (const then of [undefined, headerOf(second)]) {
      let now: BlockHeader | undefined = headerOf(second, 2);
      const chain: Chain = (number) => (number === second ? now : headerOf(number, number === first ? 1 : 0));
      const onWait = () => {
        now = then;
      };
      const { report, differences } = await verify(chain, { from, onWait });
      assert.deepEqual([report.outcome, differences], ['reorganised', []]);
    }
  });

  /** Each of these nodes by itself. */
  const witnessesOf = (...chains: Chain[]) =>
    chains.map((chain, index) => ({ name: `node ${index}`, nodes: nodesOf(chain) }));
  /** Leaves the stored chain at this block. */
  const leavesAt =
    (first: number): Chain =>
    (number) =>
      headerOf(number, number >= first ? 2 : 0, first - 1);

  test('if the nodes agree, they are asked only for the last header of each batch', async () => {
    const asked: BlockReference[] = [];
    const counting = nodesOf(headerOf);
    const witness = {
      name: 'counted',
      nodes: {
        ...counting,
        async findHeader(reference: BlockReference, signal: AbortSignal) {
          asked.push(reference);
          return counting.findHeader(reference, signal);
        },
        bundles: () => Promise.reject(new Error('no block is asked for')),
      },
    };
    const { report } = await verify(headerOf, { witnesses: [witness, witness] });
    assert.deepEqual([report.outcome, report.blocks], ['equal', BLOCKS]);
    assert.ok(asked.length < BLOCKS && asked.at(-1) === BLOCKS, String(asked));
  });

  test('a database that followed a false chain differs even if the first node serves that chain', async () => {
    const witnesses = witnessesOf(headerOf, leavesAt(3), leavesAt(3));
    const dissents: string[] = [];
    const onDissent = ({ node, block, message }: Parameters<VerifyOptions['onDissent']>[0]) =>
      dissents.push(`${node} in ${block}, ${message.split(':')[0]}`);
    const { report, differences } = await verify(headerOf, { witnesses, onDissent });
    const wrong = Array.from({ length: BLOCKS - 2 }, (_, index) => index + 3);
    assert.deepEqual(
      differences,
      wrong.map((number) => `hash in ${number}`),
    );
    assert.equal(report.outcome, 'different');
    assert.deepEqual(
      dissents,
      wrong.map((number) => `node 0 in ${number}, only this node does not have this difference`),
    );
  });

  test('a node that is alone on its branch is named even if the blocks come from other nodes', async () => {
    const witnesses = witnessesOf(leavesAt(3), headerOf, headerOf);
    const said: string[] = [];
    const onDissent = ({ node, message }: Parameters<VerifyOptions['onDissent']>[0]) =>
      said.push(`${node}: ${message}`);
    const { report } = await verify(headerOf, { witnesses, onDissent });
    assert.deepEqual([report.outcome, report.dissents > 0], ['equal', true]);
    assert.match(said.join('\n'), /^node 0: block \d+ is 0x\w+ at this node, and 0x\w+ at the others$/m);
  });

  test('with chain.quorum at three, two of three nodes do not suffice', async () => {
    const witnesses = witnessesOf(headerOf, leavesAt(3), leavesAt(3));
    const { report, differences } = await verify(headerOf, { witnesses, quorum: 3 });
    assert.deepEqual([report.outcome, differences], ['not_compared', []]);
    const lowered = await verify(headerOf, { witnesses: witnesses.toReversed(), quorum: 1 });
    assert.deepEqual([lowered.report.outcome, lowered.differences], ['equal', []]);
  });

  test('one node on another chain makes no difference, and is named', async () => {
    const witnesses = witnessesOf(leavesAt(3), headerOf, headerOf);
    const nodes = new Set<string>();
    const { report, differences } = await verify(leavesAt(3), {
      witnesses,
      onDissent: ({ node }) => nodes.add(node),
    });
    assert.deepEqual([report.outcome, differences, [...nodes]], ['equal', [], ['node 0']]);
  });

  test('nodes that differ above the final block are compared again, and a reorg in between is no dissent', async () => {
    let firstForeign = FINAL + 1;
    const turning: Chain = (number) => leavesAt(firstForeign)(number);
    const settled = await verify(headerOf, {
      witnesses: witnessesOf(headerOf, turning),
      onWait: () => {
        firstForeign = BLOCKS + 1;
      },
    });
    assert.deepEqual([settled.report.outcome, settled.waitsMs], ['equal', [SETTLE_MS]]);
    const reorganised = await verify(headerOf, {
      witnesses: witnessesOf(headerOf, leavesAt(FINAL + 1)),
      onWait: () =>
        database().query(sql`update block set hash = ${toBytes(hashOf(1))} where number > ${FINAL}`),
    });
    assert.deepEqual([reorganised.report.outcome, reorganised.differences], ['reorganised', []]);
  });
});
