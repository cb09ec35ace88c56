import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { DeploymentDetails } from '../../../src/api/ops/deployment-body.ts';
import { attemptDue } from '../../kit/attempts.ts';
import { addressOf, headerOf, mine, noon, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { createApiStory } from '../api-story.ts';

const TOKEN = 'f00d'.repeat(8);
const RECEIVERS = '/api/admin/receivers';
const details: DeploymentDetails = {
  processes: [],
  late_watchers: [{ watcher_id: 1, watcher: 'acme', oldest_due_at: noon.toISOString(), seconds: 80 }],
};

onSampledDatabase(import.meta.url, ({ database }) => {
  /** Watchers acme and beta, each with a receiver that fails and one that doesn't. */
  async function createStory() {
    const story = createApiStory(database(), { details: async () => details }, undefined, {
      adminToken: TOKEN,
    });
    for (const [index, name] of ['acme', 'beta'].entries()) {
      const { watcherId } = await story.issue(name);
      for (const [place, host] of ['one', 'two'].entries()) {
        const address = addressOf(1 + 2 * index + place);
        await watchAddress(database(), { watcherId, address, url: `https://${host}.example/hook` });
      }
    }
    const transfers = [1, 3].map((number) => transferOf({ receiver: addressOf(number) }));
    await mine(database(), headerOf(1), transfers);
    await attemptDue(database(), { now: noon, succeeds: false });
    const list = async (url: string) => {
      const { status, json, text, headers } = await story.ask('GET', url, { key: TOKEN });
      assert.equal(status, 200, text);
      const { data } = json as { data: { watcher: string; origin: string }[] };
      return {
        names: data.map(({ watcher, origin }) => `${watcher} ${new URL(origin).hostname}`),
        next: /^<(.+)>; rel="next"$/.exec(headers.link ?? '')?.[1],
      };
    };
    return { ...story, list };
  }

  test('an operator lists all receivers, the failing ones, or those of one watcher', async () => {
    const { list } = await createStory();
    const names = async (query: string) => (await list(`${RECEIVERS}${query}`)).names;
    assert.deepEqual(await names(''), [
      ...['acme one.example', 'acme two.example'],
      ...['beta one.example', 'beta two.example'],
    ]);
    assert.deepEqual(await names('?failing=true'), ['acme one.example', 'beta one.example']);
    assert.deepEqual(await names('?failing=true&watcher_id=2'), ['beta one.example']);
    const pages: string[][] = [];
    for (let url: string | undefined = `${RECEIVERS}?limit=1&failing=true`; url !== undefined; ) {
      const page: { names: string[]; next: string | undefined } = await list(url);
      pages.push(page.names);
      url = page.next;
    }
    assert.deepEqual(pages, [['acme one.example'], ['beta one.example'], []]);
  });

  test('only operators see the deployment with its hosts', async () => {
    const { ask } = await createStory();
    const { json } = await ask('GET', '/api/admin/deployment', { key: TOKEN });
    assert.deepEqual(json, { success: true, data: details });
    for (const url of ['/api/admin/deployment', RECEIVERS]) assert.equal((await ask('GET', url)).status, 401);
    for (const query of ['failing=1', 'watcher_id=acme', 'cursor=1', 'limit=0'])
      assert.equal((await ask('GET', `${RECEIVERS}?${query}`, { key: TOKEN })).status, 400, query);
  });
});
