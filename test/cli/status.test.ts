import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { type Receiver, startReceiver } from '../kit/receiver.ts';
import { chainMethods, makeNodeBlock, type ScriptedNode, startScriptedNode } from '../kit/scripted-node.ts';
import { CHAIN_ID, startTestService, type TestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';
import { chain, chainbell } from './chainbell.ts';

describe('status of a running service', () => {
  let place: TestDatabase;
  let node: ScriptedNode;
  let service: TestService;
  before(async () => {
    place = await createTestDatabase('embedded');
    const blocks = [makeNodeBlock(0), makeNodeBlock(1), makeNodeBlock(2)];
    node = await startScriptedNode(chainMethods(CHAIN_ID, blocks));
    service = await startTestService({ database: place, rpc: [node.url] });
    await service.inSync({
      head: async () => ({ number: 2, hash: makeNodeBlock(2).block.hash as `0x${string}` }),
    });
  });
  after(async () => {
    await service.stop();
    await node.close();
    await place[Symbol.asyncDispose]();
  });
  const status = (...words: string[]) =>
    chainbell(place.dataDir, {}, 'status', '--url', service.apiUrl, ...words);

  test('people get a table of what matters, and exit code 0 while all is well', async () => {
    const { code, out, err } = await status();
    assert.deepEqual([code, err], [0, '']);
    assert.match(out, /^state +ok$/m);
    assert.match(out, new RegExp(`^chain +${CHAIN_ID}, head 2, final 0$`, 'm'));
    assert.match(out, /^cursor +block 2 of 2023-11-14T/m);
    assert.match(out, /^queue +0 waiting, 0 due/m);
    assert.match(out, /^proof +auto: header_hash \w+/m);
    const name = new URL(node.url).origin;
    assert.match(out, new RegExp(`^${name} +ok +2 +0 of 16 +- +batch yes, block_receipts yes`, 'm'));
    assert.match(out, new RegExp(`^${name} +eth_getBlockByHash +1 +0 +0 +\\d+ +\\d+$`, 'm'));
  });

  test('scripts get the body of /status', async () => {
    const { code, out } = await status('--json');
    assert.equal(code, 0);
    const { cursor, nodes } = JSON.parse(out);
    assert.equal(cursor.number, 2);
    assert.equal(nodes[0].capabilities.batch, true);
  });

  test('a service that cannot follow its chain ends it with 75, and the reason is shown', async () => {
    node.setHttp({ status: 500 });
    const stateOf = async () =>
      ((await (await fetch(`${service.apiUrl}/status`)).json()) as { state: string }).state;
    await waitUntil(async () => (await stateOf()) === 'degraded');
    const { code, out } = await status();
    assert.equal(code, 75);
    assert.match(out, /^state +degraded$/m);
    assert.match(out, /^problem +.* answered HTTP 500 \(since .*\)$/m);
    assert.equal((await status('--json')).code, 75);
  });
});

describe('status without a service', () => {
  let other: Receiver;
  before(async () => {
    other = await startReceiver({ answer: { body: '{"status":"ok"}' } });
  });
  after(() => other.close());
  const run = (env: Record<string, string>, ...words: string[]) =>
    chainbell('.', { ...chain, ...env }, 'status', ...words);

  test('69 where nobody answers, at the configured address or the given one, and what to do', async () => {
    for (const [env, words] of [
      [{ CHAINBELL_HTTP_HOST: '0.0.0.0', CHAINBELL_HTTP_PORT: '2' }, []],
      [{}, ['--url', 'http://127.0.0.1:2']],
    ] as const) {
      const { code, out, err } = await run(env, ...words);
      assert.deepEqual([code, out], [69, '']);
      assert.match(
        err,
        /no service answers at http:\/\/127\.0\.0\.1:2 \(.*ECONNREFUSED.*\): start it with chainbell start, or name it with --url/,
      );
    }
  });

  test('69 where something else answers, or the service without its database', async () => {
    const url = `http://127.0.0.1:${other.port}`;
    assert.match((await run({}, '--url', url)).err, /is no Chainbell of this version/);
    other.setAnswer({ status: 503, body: '{}' });
    const { code, err } = await run({}, '--url', url);
    assert.equal(code, 69);
    assert.match(err, /cannot reach its database: see http.*\/readyz/);
  });

  test('64 for what is no address, and for a port that is any free one', async () => {
    const wrong = await run({}, '--url', 'nonsense');
    assert.deepEqual([wrong.code, wrong.out], [64, '']);
    assert.match(wrong.err, /nonsense is not an address/);
    const free = await run({ CHAINBELL_HTTP_PORT: '0' });
    assert.equal(free.code, 64);
    assert.match(free.err, /http\.port is 0/);
  });
});
