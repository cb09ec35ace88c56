import assert from 'node:assert/strict';
import { test } from 'node:test';
import { STATUS_EXAMPLE } from '../../../src/api/ops/status-body.ts';
import { hashOf, headerOf, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { createApiStory } from '../api-story.ts';
import { createAdminStory, dataOf, TOKEN } from './admin-story.ts';

const REORGS = '/api/admin/reorgs';
const EXPLAIN = '/api/admin/points/explain';
const nextOf = (link: string | undefined) => /^<(.+)>; rel="next"$/.exec(link ?? '')?.[1];

onSampledDatabase(import.meta.url, ({ database }) => {
  test('reorgs are listed newest first, with what they replaced and how many notifications are still orphaned', async () => {
    const { admin } = createAdminStory(database());
    assert.deepEqual(dataOf((await admin('GET', REORGS)).json), []);
    await watchAddress(database());
    const [lost, kept] = [transferOf(), transferOf()];
    for (const [number, transfers] of [
      [1, []],
      [2, [kept]],
      [3, [lost]],
    ] as const)
      await mine(database(), headerOf(number), transfers);
    // Blocks 2 and 3 are replaced, then block 2 and the new block 3 again.
    await mine(database(), headerOf(2, 1, 1), [kept], { reorg: { ancestorNumber: 1 } });
    const reorg = {
      ...{ at: noon.toISOString(), from_block: 2, to_block: 3, depth: 2, notifications_orphaned: 1 },
      ...{ old_hash: headerOf(2).hash, new_hash: headerOf(2, 1, 1).hash },
    };
    assert.deepEqual(dataOf((await admin('GET', REORGS)).json), [reorg]);
    await mine(database(), headerOf(3, 1, 1), []);
    await mine(database(), headerOf(2, 2, 1), [kept], { reorg: { ancestorNumber: 1 } });
    const second = {
      ...{ ...reorg, notifications_orphaned: 0 },
      ...{ old_hash: headerOf(2, 1, 1).hash, new_hash: headerOf(2, 2, 1).hash },
    };
    assert.deepEqual(dataOf((await admin('GET', REORGS)).json), [second, reorg]);
    const pages: unknown[] = [];
    for (let url: string | undefined = `${REORGS}?limit=1`; url !== undefined; ) {
      const { json, headers } = await admin('GET', url);
      pages.push(...dataOf(json));
      url = nextOf(headers.link);
    }
    assert.deepEqual(pages, [second, reorg]);
  });

  test('the configuration of the operator has no secret, and its status has hosts', async () => {
    const story = createAdminStory(database());
    const { text, json } = await story.admin('GET', '/api/admin/configuration');
    assert.deepEqual(dataOf(json).chain.rpc, ['https://node.example/…']);
    assert.doesNotMatch(text, /f00d/);
    assert.deepEqual(dataOf((await story.admin('GET', '/api/admin/status')).json), STATUS_EXAMPLE);
  });

  test('an explanation is answered as it is, an unknown transaction with 404, and at most two are made at once', async () => {
    const explanation = {
      ...{ hash: hashOf(1), block_number: null, block_hash: null, succeeded: null, logs: null },
      ...{ missing: { what: 'no_node', message: 'down' }, awards: [] },
    };
    const waiting: (() => void)[] = [];
    const story = createAdminStory(database(), {
      operator: {
        async explain(hash) {
          if (hash === hashOf(2)) return undefined;
          if (hash === hashOf(3)) await new Promise<void>((resolve) => waiting.push(resolve));
          return explanation;
        },
      },
    });
    const explain = (hash: string) => story.admin('GET', `${EXPLAIN}/${hash}`);
    assert.deepEqual(dataOf((await explain(hashOf(1))).json), explanation);
    assert.deepEqual(dataOf((await explain(hashOf(1).slice(2).toUpperCase())).json), explanation);
    assert.equal((await explain(hashOf(2))).status, 404);
    for (const wrong of ['0x12', 'x', `${hashOf(1)}0`]) assert.equal((await explain(wrong)).status, 400);
    const slow = [explain(hashOf(3)), explain(hashOf(3))];
    while (waiting.length < 2) await new Promise(setImmediate);
    assert.equal((await explain(hashOf(1))).status, 429);
    for (const go of waiting) go();
    for (const { status } of await Promise.all(slow)) assert.equal(status, 200);
    assert.equal((await explain(hashOf(1))).status, 200);
  });

  test('only the token opens them, and without one they do not exist', async () => {
    const { ask, issue, audited } = createAdminStory(database());
    const { key } = await issue('acme');
    const without = createApiStory(database());
    const urls = ['/api/admin/status', REORGS, '/api/admin/configuration', `${EXPLAIN}/${hashOf(1)}`];
    for (const url of urls) {
      assert.equal((await ask('GET', url)).status, 401, url);
      assert.equal((await ask('GET', url, { key })).status, 401, url);
      assert.equal((await without.askUndescribed('GET', url, { key: TOKEN })).status, 404, url);
    }
    assert.equal(audited().length, 8);
  });
});
