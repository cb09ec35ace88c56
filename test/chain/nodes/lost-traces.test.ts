/**
 * A node that can no longer trace gives blocks without internal transfers. It is asked for traces again, and the operator learns
 * which blocks lack them.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFollowingTrouble } from '../../../src/app/following-trouble.ts';
import { createLog } from '../../../src/core/log.ts';
import { blocks, complete, countOf, type NodesStage, nodeAt, withNodes } from '../../kit/nodes.ts';
import { chainMethods } from '../../kit/scripted-node.ts';

const { signal } = new AbortController();
const blind = () => chainMethods(1, blocks);

const callsOf = async ({ nodes }: NodesStage, ...numbers: number[]) =>
  (await nodes.bundles(numbers, signal)).map(({ transactions: [first] }) => first?.calls.length);

test('a node that lost its trace method is asked for traces again after 1, 2, 4 and 5 minutes, until it has them', () =>
  withNodes([complete()], async (stage) => {
    const node = nodeAt(stage.scripted, 0);
    const probesAfter = async (ms: number) => {
      const before = countOf(node, 'web3_clientVersion');
      stage.clock.advance(ms);
      assert.deepEqual(await callsOf(stage, 7), [0]);
      return countOf(node, 'web3_clientVersion') - before;
    };
    assert.deepEqual(await callsOf(stage, 7), [1]);
    node.methods = blind();
    assert.equal(await probesAfter(0), 1);
    for (const minutes of [1, 2, 4, 5, 5]) {
      assert.equal(await probesAfter(minutes * 60_000 - 1), 0);
      assert.equal(await probesAfter(1), 1);
    }
    node.methods = complete();
    stage.clock.advance(300_000);
    assert.deepEqual(await callsOf(stage, 7), [1]);
    node.methods = blind();
    assert.equal(await probesAfter(0), 1, 'it is lost again');
    assert.equal(await probesAfter(60_000), 1);
  }));

test('while blocks lack traces that earlier ones had, the state is degraded, and the log names the blocks', async () => {
  let text = '';
  const log = createLog({ level: 'warn', format: 'pretty' }, { write: (line) => (text += line) });
  await withNodes(
    [complete()],
    async (stage) => {
      const trouble = createFollowingTrouble(stage.nodes, {
        ...{ heldUpSince: () => undefined, silentTracer: () => undefined },
        isEmbedded: false,
      });
      const node = nodeAt(stage.scripted, 0);
      assert.deepEqual(await callsOf(stage, 4), [1]);
      assert.equal(trouble.find(4), undefined);
      node.methods = blind();
      const since = stage.clock.now();
      assert.deepEqual(await callsOf(stage, 5), [0]);
      stage.clock.advance(10_000);
      assert.deepEqual(await callsOf(stage, 6, 7), [0, 0]);
      const found = trouble.find(7);
      assert.deepEqual([found?.state, found?.since], ['degraded', since]);
      assert.match(
        found?.message ?? '',
        /^no node can trace anymore, so blocks from 5 on are stored without/,
      );
      node.methods = complete();
      stage.clock.advance(60_000);
      assert.deepEqual(await callsOf(stage, 8), [1]);
      assert.equal(trouble.find(8), undefined);
      assert.match(text, /traces\.back.*"from":5,"to":7/);
    },
    { log },
  );
});

test('a chain whose blocks never had traces is not degraded', () =>
  withNodes([blind()], async (stage) => {
    assert.deepEqual(await callsOf(stage, 7), [0]);
    assert.equal(stage.nodes.untraced(), undefined);
  }));

test('blocks that are read without traces on purpose are none that lack them', () =>
  withNodes([complete()], async (stage) => {
    assert.deepEqual(await callsOf(stage, 7), [1]);
    await stage.nodes.bundles([8], signal, { parts: 'without traces' });
    assert.equal(stage.nodes.untraced(), undefined);
  }));

test('after a restart, blocks wait for a node that may have traced earlier ones', () =>
  withNodes(
    [complete(), blind(), blind()],
    async (stage) => {
      const [tracer] = stage.scripted;
      tracer?.setHttp({ status: 500 });
      await assert.rejects(
        stage.nodes.bundles([7], signal),
        /http:\S+ cannot trace, and http:\S+, which may, did not answer since the start\. Earlier blocks had traces/,
      );
      // A follower reads the head first, and so knows that the others can't.
      await stage.nodes.head(signal);
      await assert.rejects(
        stage.nodes.bundles([7], signal),
        /500.*http:\S+, http:\S+ cannot trace, and http:\S+, which may, did not answer since the start/,
      );
      tracer?.setHttp(undefined);
      stage.clock.advance(60_000);
      assert.deepEqual(await callsOf(stage, 7), [1]);
    },
    { hasTraced: true },
  ));

test('after a restart with nodes that cannot trace, the blocks from the first one on lack their traces', () =>
  withNodes(
    [blind(), blind()],
    async (stage) => {
      assert.deepEqual(await callsOf(stage, 7), [0]);
      assert.match(stage.nodes.untraced()?.message ?? '', /^no node can trace anymore, so blocks from 7 on/);
    },
    { hasTraced: true },
  ));
