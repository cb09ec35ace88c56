/**
 * Blocks on their way through the worker threads, and what is made of the outcome.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Calibration, createCalibration } from '../../src/chain/calibration.ts';
import { createNodes } from '../../src/chain/nodes.ts';
import type { Checks, RawBlock, Verdict } from '../../src/chain/proof.ts';
import { createProver } from '../../src/chain/prover.ts';
import { createVerifier } from '../../src/chain/verifier.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createTestClock } from '../kit/clock.ts';
import { type RealBlock, readMainnetBlocks } from '../kit/real-blocks.ts';
import { testWithRealchain } from '../kit/replay.ts';
import { chainMethods, makeNodeBlock, type NodeBlock, startScriptedNode } from '../kit/scripted-node.ts';

const { signal } = new AbortController();
const rawOf = ({ block, receipts }: NodeBlock): RawBlock => ({ block, receipts });

/** The run of twelve consecutive blocks. */
const readRun = (folder: string): RealBlock[] =>
  readMainnetBlocks(folder).filter(({ name }) => name.startsWith('semiotic/'));

test('many blocks at once are each answered with their own outcome', async () => {
  const prover = createProver();
  const raws = Array.from({ length: 60 }, (_, number) =>
    rawOf(makeNodeBlock(number, { transactions: number % 2 })),
  );
  const outcomes = await Promise.all(raws.map((raw) => prover.prove(raw)));
  assert.deepEqual(
    outcomes.map(({ isEmpty }) => isEmpty),
    raws.map((_, number) => number % 2 === 0),
  );
  assert.ok(outcomes.every(({ headerHash }) => headerHash === 'fails'));
  await prover.close();
});

test('a block at which workers die is given up, and every other one is proved', async () => {
  const program = programOf(`import { parentPort } from 'node:worker_threads';
    parentPort.on('message', ({ id, raw }) => {
      if (raw.block === 'poison') process.exit(1);
      parentPort.postMessage({ id, checks: { isEmpty: true } });
    });`);
  const prover = createProver({ program });
  const raws = [1, 2, 'poison', 4, 5].map((block) => ({ block, receipts: [] }));
  const outcomes = await Promise.allSettled(raws.map((raw) => prover.prove(raw)));
  assert.deepEqual(
    outcomes.map((outcome) => (outcome.status === 'fulfilled' ? outcome.value.isEmpty : outcome.reason.code)),
    [true, true, 'inconsistent', true, true],
  );
  await prover.close();
});

test('a block that is nested too deeply to be copied is refused, and the next one is proved', async () => {
  const prover = createProver();
  const depth = 100_000;
  const nested: unknown = JSON.parse('['.repeat(depth) + ']'.repeat(depth));
  await assert.rejects(prover.prove({ block: { nested }, receipts: [] }), {
    name: 'Fault',
    code: 'inconsistent',
  });
  assert.equal((await prover.prove(rawOf(makeNodeBlock(7)))).isEmpty, false);
  await prover.close();
});

test('who waits for a proof at the end gets a Fault, and the threads are gone', async () => {
  const prover = createProver({ program: programOf('setTimeout(() => {}, 3_600_000);') });
  const waiting = Array.from({ length: 10 }, () => prover.prove({ block: {}, receipts: [] }));
  const outcomes = Promise.allSettled(waiting);
  await prover.close();
  for (const outcome of await outcomes) {
    assert.ok(outcome.status === 'rejected' && outcome.reason.code === 'unavailable');
  }
  await assert.rejects(prover.prove({ block: {}, receipts: [] }), { code: 'unavailable' });
});

const checksOf = (headerHash: Verdict, transactionsRoot: Verdict, receiptsRoot: Verdict): Checks => ({
  ...{ headerHash, transactionsRoot, receiptsRoot },
  isEmpty: false,
});
const whole = checksOf('holds', 'holds', 'holds');
const empty: Checks = { ...whole, isEmpty: true };
const withoutReceipts = checksOf('holds', 'holds', 'fails');

/** A calibration that has seen these recent blocks. */
function calibrated(sample: readonly Checks[]): Calibration {
  const calibration = createCalibration('auto');
  calibration.learn(sample);
  calibration.endSample();
  return calibration;
}
const refuses = (calibration: Calibration, checks: Checks, message = /is not proved/) =>
  assert.throws(() => calibration.judge('block 7', checks), { name: 'Fault', code: 'inconsistent', message });

describe('auto', () => {
  test('a check that recent blocks keep is enforced for good', () => {
    const calibration = calibrated([whole, whole, whole]);
    for (let count = 0; count < 30; count += 1) {
      refuses(calibration, withoutReceipts, /block 7 is not proved: its receipts root does not hold/);
    }
    assert.equal(calibration.states().receiptsRoot, 'enforced');
    assert.equal(calibration.judge('block 7', whole), true);
  });

  test('a check that recent blocks break is off, and the others are enforced', () => {
    const calibration = calibrated([withoutReceipts, withoutReceipts, withoutReceipts]);
    assert.deepEqual(calibration.states(), {
      ...{ headerHash: 'enforced', transactionsRoot: 'enforced' },
      receiptsRoot: 'off',
    });
    assert.equal(calibration.judge('block 7', withoutReceipts), false);
    refuses(calibration, checksOf('fails', 'holds', 'fails'));
  });

  test('one spoiled block among the recent ones turns nothing off', () => {
    assert.equal(calibrated([withoutReceipts, whole, whole, whole]).states().receiptsRoot, 'enforced');
  });

  test('a node that drops data turns nothing off where another one has it', () => {
    const calibration = createCalibration('auto');
    assert.equal(calibration.learn([withoutReceipts, withoutReceipts, withoutReceipts]), false);
    calibration.learn([whole, whole, whole]);
    calibration.endSample();
    assert.equal(calibration.states().receiptsRoot, 'enforced');
  });

  test('empty blocks decide about the header only', () => {
    const calibration = calibrated(Array.from({ length: 20 }, () => empty));
    assert.deepEqual(calibration.states(), {
      ...{ headerHash: 'enforced', transactionsRoot: 'calibrating' },
      receiptsRoot: 'calibrating',
    });
    for (let count = 0; count < 3; count += 1) calibration.judge('block', whole);
    assert.equal(calibration.states().receiptsRoot, 'enforced');
  });

  test('without recent blocks the first ones decide', () => {
    const honest = createCalibration('auto');
    assert.equal(honest.judge('block 1', whole), true);
    refuses(honest, withoutReceipts);
    const other = createCalibration('auto');
    for (let count = 0; count < 3; count += 1) {
      assert.equal(other.judge('block', checksOf('fails', 'fails', 'fails')), false);
    }
    assert.deepEqual(new Set(Object.values(other.states())), new Set(['off']));
  });

  test('a type that nobody can encode is accepted and not proved, whatever is enforced', () => {
    const calibration = calibrated([whole, whole, whole]);
    assert.equal(calibration.judge('block 7', checksOf('holds', 'unknown', 'holds')), false);
  });
});

test('strict refuses whatever is not proved, from the first block on', () => {
  const calibration = createCalibration('strict');
  assert.equal(calibration.needsSample(), false);
  assert.equal(calibration.judge('block 7', whole), true);
  assert.equal(calibration.judge('block 7', empty), true);
  refuses(calibration, withoutReceipts);
  refuses(calibration, checksOf('holds', 'unknown', 'unknown'), /its transactions root cannot be computed/);
});

test('off asks for no proof', async () => {
  const verifier = createVerifier({ mode: 'off', log: silentLog() });
  assert.equal(await verifier.verify({ number: 7, hash: '0x' }, { block: {}, receipts: [] }), false);
  await verifier.close();
});

for (const mode of ['auto', 'strict'] as const) {
  testWithRealchain(
    `a block that one node spoils comes from another one, else it is held (${mode})`,
    async (folder) => {
      const good = readRun(folder);
      const bad = readRun(folder);
      bad[8]?.receipts.findLast(({ logs }) => logs.length > 0)?.logs.pop();
      await using spoiling = await startScriptedNode(chainMethods(1, bad));
      await using honest = await startScriptedNode(chainMethods(1, good));
      const verifier = createVerifier({ mode, log: silentLog() });
      const optionsFor = (urls: string[]) => ({
        ...({ urls, chainId: 1, internalTransfers: 'off', verifier, onHead() {} } as const),
        ...{ clock: createTestClock(), log: silentLog(), metrics: createMetrics('test') },
      });
      const both = createNodes(optionsFor([spoiling.url, honest.url]));
      const single = createNodes(optionsFor([spoiling.url]));
      const spoiled = Number(bad[8]?.block.number);
      const [before] = await both.bundles([spoiled - 1], signal);
      const [bundle] = await both.bundles([spoiled], signal);
      assert.deepEqual([before?.proved, bundle?.proved], [true, true]);
      assert.equal(
        bundle?.transactions.flatMap(({ logs }) => logs).length,
        good[8]?.receipts.flatMap(({ logs }) => logs).length,
      );
      await assert.rejects(single.bundles([spoiled], signal), {
        code: 'inconsistent',
        message: /receipts root/,
      });
      assert.equal((await single.bundles([spoiled + 1], signal))[0]?.proved, true);
      assert.deepEqual(new Set(Object.values(verifier.status().checks)), new Set(['enforced']));
      await Promise.all([both.close(), single.close(), verifier.close()]);
    },
  );
}

test('made-up blocks turn every check off, and go on being followed', async () => {
  const blocks = Array.from({ length: 10 }, (_, number) => makeNodeBlock(number));
  await using node = await startScriptedNode(chainMethods(1, blocks));
  const verifier = createVerifier({ mode: 'auto', log: silentLog() });
  const nodes = createNodes({
    ...{ urls: [node.url], chainId: 1, internalTransfers: 'off', verifier, onHead() {} },
    ...{ clock: createTestClock(), log: silentLog(), metrics: createMetrics('test') },
  });
  const [bundle] = await nodes.bundles([1], signal);
  assert.equal(bundle?.proved, false);
  assert.deepEqual(new Set(Object.values(verifier.status().checks)), new Set(['off']));
  await Promise.all([nodes.close(), verifier.close()]);
});

/** A worker's program from its text. */
function programOf(text: string): URL {
  return new URL(`data:text/javascript,${encodeURIComponent(text)}`);
}
