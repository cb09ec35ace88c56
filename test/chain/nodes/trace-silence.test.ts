/**
 * Two tracing nodes of which one gives no traces: when the other one is followed alone, and for how long.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GAP_MS_MAX } from '../../../src/domain/silence.ts';
import { complete, nodeAt, withNodes } from '../../kit/nodes.ts';
import type { ScriptedNode } from '../../kit/scripted-node.ts';
import {
  decideEmpty,
  failSecond,
  failTraces,
  listed,
  omitting,
  silenceSecond,
  TRACE,
  undecided,
} from '../../kit/tracing-nodes.ts';
import { waitUntil } from '../../kit/wait.ts';

const { signal } = new AbortController();

test('after one of two tracing nodes has been silent for 30 s, and not before, the other one is followed', () =>
  withNodes([omitting(), complete()], async (stage) => {
    await failSecond(stage);
    for (const waitMs of [0, 10_000, 10_000, 9_000]) {
      stage.clock.advance(waitMs);
      await assert.rejects(decideEmpty(stage), undecided);
    }
    stage.clock.advance(1_000);
    assert.equal(await decideEmpty(stage), true);
  }));

test('a pause between two misses of a tracing node is no silence', () =>
  withNodes([omitting(), complete()], async (stage) => {
    await failSecond(stage);
    await assert.rejects(decideEmpty(stage), undecided);
    stage.clock.advance(3_600_000);
    await assert.rejects(decideEmpty(stage), undecided);
  }));

test('while both tracing nodes fail, neither becomes silent', () =>
  withNodes([omitting(), complete()], async (stage) => {
    await stage.nodes.head(signal);
    const repairs = [0, 1].map((index) => failTraces(nodeAt(stage.scripted, index)));
    for (let round = 1; round <= 5; round += 1) {
      await assert.rejects(decideEmpty(stage), undecided);
      stage.clock.advance(GAP_MS_MAX);
    }
    repairs[0]?.();
    await assert.rejects(decideEmpty(stage), undecided);
  }));

/** Lets the node receive traces but answer them only once the returned function is called. */
function holdTraces(node: ScriptedNode): () => void {
  const { promise, resolve } = Promise.withResolvers<void>();
  const trace = node.methods[TRACE];
  node.setHttp(async ({ body }) => {
    await promise;
    const { id, params } = JSON.parse(body);
    return { body: JSON.stringify({ jsonrpc: '2.0', id, result: trace?.(params) }) };
  });
  return () => {
    node.setHttp(undefined);
    resolve();
  };
}

test('a silent tracing node has a say again after its first answer, even if this comes too late for its block', () =>
  withNodes([omitting(), complete()], async (stage) => {
    (await silenceSecond(stage))();
    const { nodes, scripted, clock } = stage;
    const inFlight = () => nodes.status().map(({ throttle }) => throttle.inFlight);
    const answerLate = holdTraces(nodeAt(scripted, 1));
    const alone = nodes.areConfirmed(listed(7), [], signal);
    await waitUntil(() => clock.waits().includes(100));
    clock.advance(100);
    assert.equal(await alone, true);
    assert.equal(nodes.agreement().silentTracer?.name, nodes.status()[1]?.name);
    answerLate();
    await waitUntil(() => inFlight()[1] === 0);
    assert.equal(nodes.agreement().silentTracer, undefined);
    const answer = holdTraces(nodeAt(scripted, 1));
    const before = nodeAt(scripted, 0).exchangeCount();
    const compared = assert.rejects(nodes.areConfirmed(listed(7), [], signal), { code: 'inconsistent' });
    await waitUntil(
      () => nodeAt(scripted, 0).exchangeCount() > before && inFlight()[0] === 0 && inFlight()[1] === 1,
    );
    clock.advance(100);
    answer();
    await compared;
  }));

test('while one of two tracing nodes is silent, the other one has its full time', () =>
  withNodes([omitting(), complete()], async (stage) => {
    await silenceSecond(stage);
    const { nodes, scripted, clock } = stage;
    const first = nodeAt(scripted, 0);
    const before = first.exchangeCount();
    const answer = holdTraces(first);
    const confirming = nodes.areConfirmed(listed(7), [], signal);
    // An early end is reported below.
    confirming.catch(() => {});
    await waitUntil(() => first.exchangeCount() > before);
    clock.advance(100);
    answer();
    assert.equal(await confirming, true);
  }));

test('if chain.quorum is set, one of two tracing nodes is never enough', () =>
  withNodes(
    [omitting(), complete()],
    async (stage) => {
      await failSecond(stage);
      for (let misses = 1; misses <= 5; misses += 1) {
        await assert.rejects(decideEmpty(stage), undecided);
        stage.clock.advance(GAP_MS_MAX);
      }
    },
    { quorum: 2 },
  ));
