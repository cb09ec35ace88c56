import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createBudget, firstAnswer } from '../../../src/chain/nodes/hedge.ts';
import { createVerifier } from '../../../src/chain/proof/verifier.ts';
import { Fault } from '../../../src/core/fault.ts';
import { silentLog } from '../../../src/core/log.ts';
import { createTestClock, type TestClock } from '../../kit/clock.ts';
import { blocks, complete, countOf, nodeAt, withNodes } from '../../kit/nodes.ts';
import { type Method, makeHash } from '../../kit/scripted-node.ts';
import { waitUntil } from '../../kit/wait.ts';

const { signal } = new AbortController();
const headHash = makeHash(0, 9, 0);
const AFTER_MS = 100;

/** Asks a, b and c, which answer when the test lets them. */
function createRace(clock: TestClock = createTestClock(), mayHedge = true) {
  const asked: string[] = [];
  const aborted: string[] = [];
  const answers = new Map<string, PromiseWithResolvers<string | undefined>>();
  const lost: string[] = [];
  const hedging = {
    afterMs: () => AFTER_MS,
    start: () => mayHedge,
    lost: (name: string) => lost.push(name),
  };
  const racing = firstAnswer({ clock, signal, hedging }, ['a', 'b', 'c'], (name, abort) => {
    asked.push(name);
    const answer = Promise.withResolvers<string | undefined>();
    answers.set(name, answer);
    abort.addEventListener('abort', () => {
      aborted.push(name);
      answer.reject(new Fault('unavailable', `${name} was aborted`));
    });
    return answer.promise;
  });
  const late = async () => {
    await waitUntil(() => clock.waits().includes(AFTER_MS));
    clock.advance(AFTER_MS);
  };
  const askedNow = (count: number) => waitUntil(() => asked.length === count);
  return { clock, racing, asked, aborted, lost, answers, late, askedNow };
}

test('a node that answers in time is the only one asked', async () => {
  const { racing, answers, asked, clock } = createRace();
  answers.get('a')?.resolve('yes');
  assert.deepEqual((await racing) satisfies object, { candidate: 'a', answer: 'yes' });
  assert.deepEqual([asked, clock.waits()], [['a'], []]);
});

test('if the first takes too long, a second is asked but no third, and the first good answer aborts the other request', async () => {
  const { racing, answers, asked, aborted, lost, late, askedNow, clock } = createRace();
  await late();
  await askedNow(2);
  assert.deepEqual(clock.waits(), []);
  answers.get('b')?.resolve('yes');
  const result = await racing;
  assert.ok('answer' in result && result.answer === 'yes');
  assert.deepEqual([asked, aborted, lost], [['a', 'b'], ['a'], ['a']]);
});

test('the first may still win after the second was asked', async () => {
  const { racing, answers, aborted, lost, late, askedNow } = createRace();
  await late();
  await askedNow(2);
  answers.get('a')?.resolve('slow');
  const result = await racing;
  assert.ok('answer' in result && result.answer === 'slow');
  assert.deepEqual([aborted, lost], [['b'], []]);
});

test('if one of two fails, the third takes its place, and the late one may still answer', async () => {
  const { racing, answers, asked, late, askedNow } = createRace();
  await late();
  await askedNow(2);
  answers.get('b')?.reject(new Fault('inconsistent', 'b lies'));
  await askedNow(3);
  answers.get('c')?.reject(new Fault('unavailable', 'c is away'));
  answers.get('a')?.reject(new Fault('unavailable', 'a is away'));
  const result = await racing;
  assert.ok('faults' in result);
  assert.deepEqual(
    result.faults.map(({ message }) => message),
    ['b lies', 'c is away', 'a is away'],
  );
  assert.deepEqual(asked, ['a', 'b', 'c']);
});

test('the next one is also asked if a candidate takes too long after another has failed', async () => {
  const { racing, answers, asked, late, askedNow } = createRace();
  answers.get('a')?.reject(new Fault('unavailable', 'a is away'));
  await askedNow(2);
  await late();
  await askedNow(3);
  answers.get('c')?.resolve('yes');
  const result = await racing;
  assert.ok('answer' in result && result.answer === 'yes');
  assert.deepEqual(asked, ['a', 'b', 'c']);
});

test('without budget the caller waits for the first', async () => {
  const { racing, answers, asked, late, clock } = createRace(createTestClock(), false);
  await late();
  await waitUntil(() => clock.waits().length === 0);
  answers.get('a')?.resolve('yes');
  await racing;
  assert.deepEqual(asked, ['a']);
});

test('the next one is asked after undefined, and the answer is undefined if none has another', async () => {
  const { racing, answers, askedNow } = createRace();
  for (const [index, name] of ['a', 'b', 'c'].entries()) {
    await askedNow(index + 1);
    answers.get(name)?.resolve(undefined);
  }
  const result = await racing;
  assert.ok('answer' in result && result.answer === undefined);
});

test('an error that is not a Fault ends the search, because it is a bug', async () => {
  const { racing, answers } = createRace();
  answers.get('a')?.reject(new TypeError('a bug'));
  await assert.rejects(racing, TypeError);
});

test('the budget allows ten requests at once, and one for every twenty ordinary ones after that', () => {
  const budget = createBudget();
  const takeAll = () => {
    let count = 0;
    while (budget.take()) count += 1;
    return count;
  };
  assert.equal(takeAll(), 10);
  for (let request = 0; request < 1_000; request += 1) {
    budget.earn();
    if (request % 20 === 19) budget.take();
  }
  assert.equal(takeAll(), 0);
  for (let request = 0; request < 21; request += 1) budget.earn();
  assert.equal(takeAll(), 1);
});

test('a block that one node gives too slowly comes whole from the next, and the slow request is aborted', () =>
  withNodes([complete(), complete()], async ({ scripted, nodes, clock, metrics }) => {
    const [slow, quick] = [nodeAt(scripted, 0), nodeAt(scripted, 1)];
    await nodes.head(signal);
    const before = quick.exchangeCount();
    // Its receipts belong to another block, so a mix of both nodes would be refused.
    slow.methods.eth_getBlockReceipts = () => blocks[3]?.receipts;
    slow.setHttp('hang');
    const fetching = nodes.bundles([headHash], signal);
    await waitUntil(() => clock.waits().includes(AFTER_MS));
    assert.equal(quick.exchangeCount(), before);
    clock.advance(AFTER_MS);
    assert.equal((await fetching)[0]?.header.number, 9);
    assert.equal(quick.exchangeCount(), before + 1);
    assert.equal(countOf(quick, 'eth_getBlockReceipts'), 2, 'once to find out, once for the block');
    const [status] = nodes.status();
    assert.deepEqual(
      nodes.status().map(({ hedges, overtaken }) => [hedges, overtaken]),
      [
        [0, 1],
        [1, 0],
      ],
    );
    await waitUntil(() => nodes.status()[0]?.throttle.inFlight === 0, {
      describe: 'the loser to be aborted',
    });
    assert.deepEqual([status?.state, status?.error], ['ok', undefined], 'to lose is no failure');
    const name = new URL(quick.url).origin;
    assert.ok((await metrics.registry.metrics()).includes(`chainbell_rpc_hedges_total{node="${name}"} 1`));
  }));

test('a node that hangs delays three blocks by a tenth of a second each, then others are asked first', () =>
  withNodes([complete(), complete()], async ({ scripted, nodes, clock }) => {
    await nodes.head(signal);
    nodeAt(scripted, 0).setHttp('hang');
    for (let time = 0; time < 3; time += 1) {
      const fetching = nodes.bundles([headHash], signal);
      await waitUntil(() => clock.waits().includes(AFTER_MS));
      clock.advance(AFTER_MS);
      await fetching;
    }
    const { state, slowUntil } = nodes.status()[0] ?? {};
    assert.deepEqual([state, slowUntil], ['slow', new Date(clock.now().getTime() + 300_000)]);
    const asked = nodeAt(scripted, 0).exchangeCount();
    await nodes.bundles([headHash], signal);
    assert.equal(nodeAt(scripted, 0).exchangeCount(), asked);
  }));

test('with a quorum of one, a node that hangs from the start delays requests only until they are hedged', () => {
  const { eth_getBlockByNumber, ...others } = complete();
  const byTag: Method = ([reference, isFull]) =>
    eth_getBlockByNumber?.([reference === 'finalized' ? blocks[4]?.block.number : reference, isFull]);
  return withNodes(
    [complete(), { ...others, eth_getBlockByNumber: byTag }],
    async ({ scripted, nodes, clock }) => {
      nodeAt(scripted, 0).setHttp('hang');
      const askPastHedge = async <T>(asking: Promise<T>): Promise<T> => {
        await waitUntil(() => clock.waits().includes(AFTER_MS));
        clock.advance(AFTER_MS);
        return asking;
      };
      assert.equal((await nodes.identify(signal)).chainId, 1);
      assert.equal((await askPastHedge(nodes.findHeader(7, signal)))?.number, 7);
      assert.equal((await nodes.finalized(signal))?.number, 4, 'at once, from the one that is known');
      assert.equal((await askPastHedge(nodes.findHeader(headHash, signal)))?.number, 9);
    },
    { quorum: 1 },
  );
});

test('calibration samples nodes that answer, and does not wait for one that hangs', async () => {
  const verifier = createVerifier({ mode: 'auto', chainId: 7, nodeCount: 3, enforced: [], log: silentLog() });
  await withNodes(
    [complete(), complete(), complete()],
    async ({ scripted, nodes, clock }) => {
      nodeAt(scripted, 0).setHttp('hang');
      await nodes.head(signal);
      clock.advance(1_000);
      assert.equal((await nodes.bundles([headHash], signal)).length, 1);
      assert.equal(nodeAt(scripted, 0).exchangeCount(), 1, 'its head alone');
    },
    { verifier },
  );
  await verifier.close();
});

for (const [name, count, references] of [
  ['history', 2, [1, 2, 3, 4]],
  ['a request with a single node', 1, [9]],
] as const) {
  test(`${name} is not hedged`, () =>
    withNodes(
      Array.from({ length: count }, () => complete()),
      async ({ scripted, nodes, clock }) => {
        await nodes.head(signal);
        const waits: number[] = [];
        const { methods } = nodeAt(scripted, 0);
        const { eth_getBlockByNumber } = methods;
        methods.eth_getBlockByNumber = (params) => {
          waits.push(...clock.waits());
          return eth_getBlockByNumber?.(params);
        };
        await nodes.bundles(references, signal);
        assert.deepEqual(waits, []);
      },
    ));
}
