import assert from 'node:assert/strict';
import { type TestContext, test } from 'node:test';
import { startSampleReceiver } from '../../devnet/sample-receiver.ts';

const payload = {
  id: 7,
  watched_addresses_id: '0b0c2f5e-9f0e-4c58-8f1c-1f9f2a7c6d11',
  watcher_id: 1,
  hash: `0x${'ab'.repeat(32)}`,
  type: 'COIN_TRANSFER',
  sender: `0x${'11'.repeat(20)}`,
  receiver: `0x${'22'.repeat(20)}`,
  asset: 'ETH',
};

/** A receiver, its printed lines, and a function that sends to it. */
async function startReceiver(context: TestContext) {
  const lines: string[] = [];
  const receiver = await startSampleReceiver({
    preferredPort: 0,
    apiKey: () => 'the key',
    assets: new Map([['eth', { symbol: 'ETH', decimals: 18 }]]),
    print: (line) => lines.push(line),
    now: () => new Date('2026-01-02T03:04:05Z'),
  });
  context.after(() => receiver.stop());
  const post = async (path: string, body: string, key = 'the key') => {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
    return (await fetch(receiver.url + path, { method: 'POST', headers, body })).status;
  };
  const ring = (amount: string, key?: string) =>
    post('/', `${JSON.stringify(payload).slice(0, -1)},"amount":${amount}}`, key);
  return { lines, post, ring, receiver };
}

test('an amount is printed with all of its digits', async (context) => {
  const { lines, ring } = await startReceiver(context);
  assert.equal(await ring('123456789012345678901234567890'), 200);
  assert.match(
    lines[0] ?? '',
    /03:04:05 .*COIN_TRANSFER .* 123456789012\.34567890123456789 ETH .*0x1111…1111 → 0x2222…2222/,
  );
});

test('a webhook without the right key is refused and not acted upon', async (context) => {
  const { lines, ring } = await startReceiver(context);
  assert.equal(await ring('1', 'another key'), 401);
  assert.doesNotMatch(lines.join('\n'), /COIN_TRANSFER/);
});

test('a broken receiver answers 500, and a mended one says at which attempt it accepted', async (context) => {
  const { lines, ring, post } = await startReceiver(context);
  await post('/break', '');
  assert.equal(await ring('1'), 500);
  assert.equal(await ring('1'), 500);
  await post('/mend', '');
  assert.equal(await ring('1'), 200);
  assert.match(lines.at(-1) ?? '', /accepted at attempt 3$/);
});

test('a notification that comes twice is recognised by its id', async (context) => {
  const { lines, ring } = await startReceiver(context);
  assert.equal(await ring('1'), 200);
  assert.equal(await ring('1'), 200);
  assert.match(lines[1] ?? '', /seen before, 2 times now$/);
});

test('a body that is not a notification is refused, and the receiver keeps running', async (context) => {
  const { ring, post } = await startReceiver(context);
  const tooLong = JSON.stringify({ ...payload, amount: 1, more: 'x'.repeat(70_000) });
  for (const body of ['', 'not json', '[]', '{"id":1}', tooLong]) {
    assert.equal(await post('/', body), 400, body.slice(0, 20));
  }
  assert.equal(await ring('1.5'), 400);
  assert.equal(await ring('1'), 200);
});

test('the first accepted webhook is announced', async (context) => {
  const { receiver, ring } = await startReceiver(context);
  await ring('1');
  await receiver.first;
});
