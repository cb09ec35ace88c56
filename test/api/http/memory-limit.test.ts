/**
 * Large requests of one watcher wait for each other, and delay no other watcher.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type ClientRequest, get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { createSlowDatabase } from '../../kit/slow-database.ts';
import { waitUntil } from '../../kit/wait.ts';
import { PATH } from '../api-story.ts';
import { addressOf, BULK, createBulkStory, recordOf, recordsOf } from '../notifications/bulk-story.ts';

const WAIT_MS = 30_000;
const JSON_TYPE = 'application/json';

async function answerOf(
  asked: ClientRequest,
): Promise<{ status: number | undefined; headers: IncomingMessage['headers']; text: string }> {
  const [response] = (await once(asked, 'response')) as [IncomingMessage];
  return { status: response.statusCode, headers: response.headers, text: await text(response) };
}

/** 10,000 changes, which name each of 320 records 32 times, in 0.7 MB. Their response has 23 MB. */
async function manyChanges(story: Awaited<ReturnType<typeof createBulkStory>>): Promise<object[]> {
  const webhook_url = `https://a.example.com/${'x'.repeat(2_000)}`;
  const created = await story.ask('POST', BULK, {
    key: story.key,
    body: { records: recordsOf(320).map((record) => ({ ...record, webhook_url })) },
  });
  const { data } = created.json as { data: { id: string }[] };
  return Array.from({ length: 10_000 }, (_, index) => ({ operation: 'update', id: data[index % 320]?.id }));
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a watcher may have four bodies of unknown length at once. The fifth waits, and another watcher is served', async () => {
    await using story = await createBulkStory(database());
    const other = await story.issue('other');
    // A chunked body counts as 8 MiB.
    const opened = Array.from({ length: 5 }, (_, number) => {
      const one = story.open({ 'content-type': JSON_TYPE });
      one.write(`{"records":${JSON.stringify([recordOf(number)])}`);
      return { one, answer: answerOf(one) };
    });
    await waitUntil(() => story.clock.waits().includes(WAIT_MS));
    assert.deepEqual(story.clock.waits(), [WAIT_MS]);
    const served = story.open({ 'content-type': JSON_TYPE, authorization: `Bearer ${other.key}` });
    served.end(JSON.stringify({ records: recordsOf(3) }));
    assert.equal((await answerOf(served)).status, 200);
    // Whichever of them waits is read when another one has ended.
    for (const { one } of opened) one.end('}');
    for (const { answer } of opened) assert.equal((await answer).status, 200);
    assert.deepEqual(story.clock.waits(), []);
    assert.equal((await story.list()).length, 5);
  });

  test('the operator waits for no watcher, whose requests wait for no operator', async () => {
    const adminToken = 'f00d'.repeat(8);
    await using story = await createBulkStory(database(), {}, { adminToken });
    const asOperator = {
      ...{ 'content-type': JSON_TYPE, authorization: `Bearer ${adminToken}` },
      'chainbell-watcher': String(story.watcherId),
    };
    const openAll = (count: number, headers: Record<string, string>) =>
      Array.from({ length: count }, () => {
        const one = story.open(headers);
        one.on('error', () => {}).write('{"records":[');
        return one;
      });
    const send = async (headers: Record<string, string>, number: number) => {
      const one = story.open(headers);
      one.end(JSON.stringify({ records: [recordOf(number)] }));
      return (await answerOf(one)).status;
    };
    // Eight watchers hold all the memory there is for them, so a body of the ninth waits, whichever arrives last.
    const ofWatchers = openAll(1, { 'content-type': JSON_TYPE });
    for (let number = 2; number <= 9; number += 1) {
      const { key } = await story.issue(`watcher ${number}`);
      ofWatchers.push(...openAll(1, { 'content-type': JSON_TYPE, authorization: `Bearer ${key}` }));
    }
    await waitUntil(() => story.clock.waits().length === 1);
    assert.equal(await send(asOperator, 1), 200);
    // The operator's second and third body for one watcher wait.
    const ofOperator = openAll(3, asOperator);
    await waitUntil(() => story.clock.waits().length === 3);
    for (const one of ofWatchers) one.destroy();
    await waitUntil(() => story.clock.waits().length === 2);
    assert.equal(await send({ 'content-type': JSON_TYPE }, 2), 200);
    for (const one of ofOperator) one.destroy();
  });

  test('a large body that waited for 30 s is refused with 429 and the reason', async () => {
    await using story = await createBulkStory(database());
    const opened = Array.from({ length: 5 }, () => {
      const one = story.open({ 'content-type': JSON_TYPE });
      one.on('error', () => {}).flushHeaders();
      return one;
    });
    const refused = Promise.race(opened.map(answerOf));
    await waitUntil(() => story.clock.waits().includes(WAIT_MS));
    story.clock.advance(WAIT_MS);
    const { status, headers, text } = await refused;
    assert.deepEqual([status, headers['retry-after']], [429, '60']);
    assert.deepEqual(JSON.parse(text), {
      success: false,
      statusCode: 429,
      statusMessage: 'Too many requests with many records are under way. This one has waited for 30 s',
    });
    for (const one of opened) one.destroy();
  });

  test('lists that a watcher does not read delay only its own next lists', async () => {
    await using story = await createBulkStory(database());
    const webhook_url = `https://a.example.com/${'x'.repeat(2_000)}`;
    const address = addressOf(7);
    // More than the sockets' buffers hold.
    for (let start = 0; start < 9_000; start += 3_000) {
      const records = Array.from({ length: 3_000 }, () => ({ address, webhook_url }));
      assert.equal((await story.ask('POST', BULK, { key: story.key, body: { records } })).status, 200);
    }
    const [one] = await story.list();
    const server = story.api.server.address();
    const port = typeof server === 'object' ? server?.port : undefined;
    const list = (key: string, query: string) =>
      get({
        ...{ port, host: '127.0.0.1', agent: false, path: `${PATH}?${query}` },
        headers: { authorization: `Bearer ${key}` },
      });
    const other = await story.issue('other');
    for (const query of ['limit=10000', `address=${address}`]) {
      const unread = list(story.key, query);
      const [response] = (await once(unread, 'response')) as [IncomingMessage];
      const next = list(story.key, query);
      const answer = answerOf(next);
      await waitUntil(() => story.clock.waits().includes(WAIT_MS));
      assert.equal((await answerOf(list(other.key, query))).status, 200);
      // One record of the watcher itself waits for no list.
      assert.equal((await story.ask('GET', `${PATH}/${one?.id}`, { key: story.key })).status, 200);
      response.destroy();
      assert.equal(JSON.parse((await answer).text).data.length, 9_000);
    }
  });

  test('a client that does not read its list is cut off when another watcher waits for the memory', async () => {
    await using story = await createBulkStory(database());
    const [other, third] = [await story.issue('other'), await story.issue('third')];
    const webhook_url = `https://a.example.com/${'x'.repeat(2_000)}`;
    const records = Array.from({ length: 3_000 }, () => ({ address: addressOf(7), webhook_url }));
    const { port } = story.api.server.address() as AddressInfo;
    const list = (key: string, limit: number) =>
      get({
        ...{ port, host: '127.0.0.1', agent: false, path: `${PATH}?limit=${limit}` },
        headers: { authorization: `Bearer ${key}` },
      });
    for (const key of [story.key, story.key, other.key, other.key])
      assert.equal((await story.askUndescribed('POST', BULK, { key, body: { records } })).status, 200);
    // 26 pages of 32, one request after the other: the last one of the first watcher would wait if the other watcher's came before it.
    const unread: ClientRequest[] = [];
    for (const [key, limit] of [
      [story.key, 10_000],
      [story.key, 6_000],
      [other.key, 10_000],
    ] as const) {
      const one = list(key, limit);
      unread.push(one);
      await once(one, 'response');
    }
    story.clock.advance(60_000);
    assert.equal((await answerOf(list(third.key, 10_000))).status, 200);
    for (const one of unread) one.destroy();
  });

  test('changes whose responses a watcher does not read delay only its own next ones', async () => {
    await using story = await createBulkStory(database());
    const records = await manyChanges(story);
    const change = (key: string, changes: unknown[]) => {
      const one = story.open({ 'content-type': JSON_TYPE, authorization: `Bearer ${key}` });
      one.on('error', () => {}).end(JSON.stringify({ records: changes }));
      return one;
    };
    const unread: IncomingMessage[] = [];
    for (let count = 0; count < 2; count += 1)
      unread.push(...((await once(change(story.key, records), 'response')) as [IncomingMessage]));
    const third = answerOf(change(story.key, records));
    await waitUntil(() => story.clock.waits().includes(WAIT_MS));
    const other = await story.issue('other');
    assert.equal((await answerOf(change(other.key, recordsOf(3)))).status, 200);
    unread[0]?.destroy();
    const { status, text } = await third;
    assert.equal(status, 200);
    assert.ok(text.length > 22_000_000 && text.length < 24_000_000, String(text.length));
    for (const one of unread) one.destroy();
  });

  test('a client is not cut off for the time that its body took, while others wait for the memory', async () => {
    await using story = await createBulkStory(database());
    const records = await manyChanges(story);
    const openFor = (key: string) => {
      const one = story.open({ 'content-type': JSON_TYPE, authorization: `Bearer ${key}` });
      one.on('error', () => {}).write('{"records":');
      return one;
    };
    const uploading = openFor(story.key);
    const unread = openFor(story.key);
    unread.end(`${JSON.stringify(records)}}`);
    await once(unread, 'response');
    const others: ClientRequest[] = [];
    for (const [name, count] of [
      ['beta', 2],
      ['gamma', 2],
      ['delta', 1],
      ['epsilon', 1],
    ] as const) {
      const { key } = await story.issue(name);
      for (let number = 0; number < count; number += 1) others.push(openFor(key));
    }
    const waitFor = async (name: string) => {
      others.push(openFor((await story.issue(name)).key));
      await waitUntil(() => story.clock.waits().includes(WAIT_MS));
    };
    await waitFor('zeta');
    story.clock.advance(WAIT_MS - 1_000);
    await waitFor('eta');
    const connections = promisify(story.api.server.getConnections.bind(story.api.server));
    const count = await connections();
    story.clock.advance(WAIT_MS - 10_000);
    uploading.end(`${JSON.stringify(records)}}`);
    const [response] = (await once(uploading, 'response')) as [IncomingMessage];
    // Clients are looked at in the order of their requests, so this one was looked at before.
    await waitUntil(async () => (await connections()) < count);
    assert.equal(JSON.parse(await text(response)).data.length, 10_000);
    for (const one of [unread, ...others]) one.destroy();
  });

  test('clients that leave while their key is checked hold nothing', async () => {
    const slow = createSlowDatabase(database());
    await using story = await createBulkStory(slow.database);
    const { api, key } = story;
    slow.pause();
    const { port } = api.server.address() as AddressInfo;
    const list = { port, path: PATH, headers: { authorization: `Bearer ${key}` }, agent: false };
    const left = Array.from({ length: 40 }, (_, number) => {
      const one = number % 2 === 0 ? story.open({ 'content-type': JSON_TYPE }) : get(list);
      one.on('error', () => {}).flushHeaders();
      return one;
    });
    await waitUntil(() => slow.waited() >= left.length);
    for (const one of left) one.destroy();
    await waitUntil(async () => (await promisify(api.server.getConnections.bind(api.server))()) === 0);
    slow.resume();
    assert.equal((await story.ask('GET', PATH, { key })).status, 200);
    const body = story.open({ 'content-type': JSON_TYPE });
    body.end(JSON.stringify({ records: recordsOf(1) }));
    assert.equal((await answerOf(body)).status, 200);
    assert.deepEqual(story.clock.waits(), []);
  });

  test('a client that leaves while it waits is forgotten', async () => {
    await using story = await createBulkStory(database());
    const opened = Array.from({ length: 5 }, () => {
      const one = story.open({ 'content-type': JSON_TYPE });
      one.on('error', () => {}).flushHeaders();
      return one;
    });
    await waitUntil(() => story.clock.waits().includes(WAIT_MS));
    for (const one of opened) one.destroy();
    await waitUntil(() => story.clock.waits().length === 0);
    const again = story.open({ 'content-type': JSON_TYPE });
    again.end(JSON.stringify({ records: recordsOf(1) }));
    assert.equal((await answerOf(again)).status, 200);
  });
});
