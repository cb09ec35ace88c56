import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { decimalText } from '../../src/core/decimal.ts';
import { Fault, messageOf } from '../../src/core/fault.ts';
import { parseJsonPath } from '../../src/core/json-path.ts';
import {
  binancePage,
  coingeckoPage,
  createPageReader,
  httpSource,
  type QuotePaths,
} from '../../src/prices/sources.ts';
import { createTestClock } from '../kit/clock.ts';
import { type Answer, type AnswerTo, type Receiver, startReceiver } from '../kit/receiver.ts';

const { signal } = new AbortController();
const clock = createTestClock();
const pages = createPageReader();
after(() => pages.close());

const pathOf = (text: string) => parseJsonPath(text) ?? assert.fail(text);

/** A source that reads this server's answer. */
function sourceAt(server: Pick<Receiver, 'port'>, paths: QuotePaths = { price: pathOf('$.price') }) {
  const url = `http://127.0.0.1:${server.port}/api/price?key=SECRET`;
  const headers = { 'x-api-key': 'SECRET' };
  return httpSource({ pages, clock }, { name: 'http:test', maxAgeMs: 60_000, url, headers, paths });
}

/** The quote from one reading of this answer. */
async function read(answer: Answer | AnswerTo, paths?: QuotePaths) {
  await using server = await startReceiver({ answer });
  return await sourceAt(server, paths).read(signal);
}

/** The reason why one reading of this answer gives no quote. It must contain no secrets. */
async function refusal(answer: Answer | AnswerTo, paths?: QuotePaths): Promise<string> {
  try {
    const { price } = await read(answer, paths);
    return assert.fail(`gave ${decimalText(price)}`);
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    // The message as it is logged, with its causes.
    assert.doesNotMatch(messageOf(error), /SECRET/);
    return error.message;
  }
}

const body = (text: string): Answer => ({ body: text, headers: { 'content-type': 'application/json' } });

test('a price is read with all its digits, as a number or a string, in any notation', async () => {
  const long = '2500.12345678901234567890123456789';
  for (const [text, price] of [
    [long, long],
    [`"${long}"`, long],
    ['1.5e-7', '0.00000015'],
    ['25E2', '2500'],
    ['0', '0'],
    ['-1', '-1'],
  ]) {
    const quote = await read(body(`{"price":${text}}`));
    assert.equal(decimalText(quote.price), price);
    assert.deepEqual(quote.at, clock.now());
    assert.equal(quote.conf, undefined);
  }
});

test('price, time and confidence are found at their paths', async () => {
  const paths = { price: pathOf("$['a'].b[0]"), time: pathOf('$.at'), conf: pathOf('$.conf') };
  for (const at of [
    '1700000000',
    '1700000000000',
    '"1700000000"',
    '"2023-11-14T22:13:20Z"',
    '"2023-11-14T23:13:20.000+01:00"',
  ]) {
    const quote = await read(body(`{"a":{"b":[7]},"at":${at},"conf":0.01}`), paths);
    assert.equal(decimalText(quote.price), '7');
    assert.equal(quote.at.toISOString(), '2023-11-14T22:13:20.000Z', at);
    assert.equal(quote.conf?.toFixed(), '0.01');
  }
});

test('values that are not numbers, or numbers larger than any price, are refused', async () => {
  for (const text of [
    'null',
    'true',
    '{}',
    '[1]',
    '""',
    '"1,5"',
    '"0x10"',
    '"NaN"',
    '1e400000',
    '"1e999"',
    `"${'9'.repeat(41)}"`,
  ])
    assert.equal(await refusal(body(`{"price":${text}}`)), 'has no number where the price should be', text);
  assert.match(await refusal(body('{"value":1}')), /no number where the price/);
  const paths = { price: pathOf('$.price'), time: pathOf('$.at') };
  const far = ['99999999999999999', '999999999999999', '"9999-12-31T23:59:59-14:00"'];
  for (const at of ['null', '"yesterday"', '"2023-11-14T22:13:20"', '-1', ...far])
    assert.match(await refusal(body(`{"price":1,"at":${at}}`), paths), /no time where the time/);
});

test('a page that is not JSON is refused without quoting it', async () => {
  for (const text of ['', '<SECRET>', '{"price":1', '['.repeat(200_000)])
    assert.equal(await refusal(body(text)), 'answered with text that is not JSON');
});

test('a page is requested uncompressed, and one that is compressed all the same is refused with the reason', async () => {
  const compressing: AnswerTo = ({ headers }) =>
    headers['accept-encoding'] === 'identity'
      ? { body: '{"price":7}', headers: { 'content-encoding': 'Identity' } }
      : { body: gzipSync('{"price":7}'), headers: { 'content-encoding': 'gzip' } };
  assert.equal(decimalText((await read(compressing)).price), '7');
  for (const [encoding, name] of [
    ['gzip', 'gzip'],
    ['SECRET', 'unknown'],
  ] as const)
    assert.equal(
      await refusal({ body: gzipSync('{"price":7}'), headers: { 'content-encoding': encoding } }),
      `answered with a compressed page (content-encoding: ${name}), although the request accepts only identity. Configure a URL that is not compressed`,
    );
});

test('user and password of a page are sent as basic authentication', async () => {
  await using server = await startReceiver({ answer: body('{"price":1}') });
  await pages.get(`http://operator:p%40ss@127.0.0.1:${server.port}/`, {}, signal);
  assert.equal(
    server.requests[0]?.headers.authorization,
    `Basic ${Buffer.from('operator:p@ss').toString('base64')}`,
  );
});

test('a redirect is not followed, so that no other host gets the key', async () => {
  await using elsewhere = await startReceiver({ answer: body('{"price":1}') });
  const location = `http://127.0.0.1:${elsewhere.port}/path?SECRET`;
  const message = await refusal({ status: 302, headers: { location } });
  assert.match(message, /HTTP 302, a redirect to http:\/\/127\.0\.0\.1:\d+: it is not followed/);
  assert.equal(elsewhere.requests.length, 0);
});

test('a status other than 200 gives no price, whatever the body says', async () => {
  for (const status of [204, 304, 401, 404, 429, 500])
    assert.equal(
      await refusal({ status, ...(status === 401 && { body: '{"price":1}' }) }),
      `answered HTTP ${status}`,
    );
});

test('a page that never ends is aborted', async () => {
  async function* endless() {
    for (;;) yield ' '.repeat(65_536);
  }
  assert.match(await refusal({ body: endless() }), /answered more than 4194304 bytes/);
});

test('a page with more than 200,000 values is refused before it is parsed, so that it does not hold up the process', async () => {
  const most = Array(199_998).fill('1').join();
  for (const text of [
    `{"price":1,"more":[${most},2,3]}`,
    `[${'[],'.repeat(1_000_000)}[]]`,
    '['.repeat(200_001),
  ])
    assert.equal(await refusal(body(text)), 'answered more than 200000 values');
  const quote = await read(body(`{"price":1,"more":[${most}]}`));
  assert.equal(decimalText(quote.price), '1');
});

test('a price is found in a list of 8,000 tickers', async () => {
  const numbers = Object.fromEntries(Array.from({ length: 21 }, (_, at) => [`v${at}`, '123.45678900']));
  const tickers = Array.from({ length: 8_000 }, (_, at) => ({ symbol: `COIN${at}USD`, ...numbers, at }));
  const text = JSON.stringify(tickers).replace('"at":7000}', '"at":7000.00000000000000000001}');
  assert.ok(text.length < 4 * 1024 * 1024 && text.length > 3.5 * 1024 * 1024, `${text.length}`);
  const quote = await read(body(text), { price: pathOf('$[7000].at') });
  assert.equal(decimalText(quote.price), '7000.00000000000000000001');
});

for (const [promise, answer] of [
  ['that does not answer', 'hang'],
  ['whose answer does not end', { raw: 'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{' }],
] as const) {
  test(`a server ${promise} is abandoned when the time is up`, async () => {
    await using server = await startReceiver({ answer });
    const limit = new AbortController();
    const reading = sourceAt(server).read(limit.signal);
    await server.waitFor(1);
    limit.abort(new DOMException('no end', 'TimeoutError'));
    await assert.rejects(
      reading,
      (error: Fault) => error instanceof Fault && error.message.includes('no end'),
    );
  });
}

test('a broken connection is a Fault, and the next read uses a new one', async () => {
  await using server = await startReceiver({
    answer: (_request, index) => (index === 0 ? 'reset' : body('{"price":3}')),
  });
  const source = sourceAt(server);
  await assert.rejects(source.read(signal), Fault);
  assert.equal((await source.read(signal)).price.toFixed(), '3');
  const port = server.port;
  await server.close();
  await assert.rejects(sourceAt({ port }).read(signal), /ECONNREFUSED|closed|socket/);
});

test('the headers of the configuration are sent', async () => {
  await using server = await startReceiver({ answer: body('{"price":1}') });
  await sourceAt(server).read(signal);
  const [request] = server.requests;
  assert.equal(request?.method, 'GET');
  assert.equal(request?.path, '/api/price?key=SECRET');
  assert.equal(request?.headers['x-api-key'], 'SECRET');
});

test("the request to CoinGecko has the coin, the plan's key, and asks for CoinGecko's time", async () => {
  await using server = await startReceiver({
    answer: body('{"matic-network":{"usd":0.123456789012345678,"last_updated_at":1700000000}}'),
  });
  const baseUrl = `http://127.0.0.1:${server.port}/api/v3/`;
  for (const plan of ['demo', 'pro'] as const) {
    const page = coingeckoPage({ id: 'matic-network', plan, apiKey: 'KEY', baseUrl });
    const source = httpSource({ pages, clock }, { name: 'coingecko:matic-network', maxAgeMs: 1, ...page });
    const quote = await source.read(signal);
    assert.equal(quote.price.toFixed(), '0.123456789012345678');
    assert.equal(quote.at.getTime(), 1_700_000_000_000);
    const request = server.requests.at(-1);
    assert.equal(request?.headers[`x-cg-${plan}-api-key`], 'KEY');
    const { pathname, searchParams } = new URL(request?.path ?? '', server.url);
    assert.equal(pathname, '/api/v3/simple/price');
    assert.deepEqual(Object.fromEntries(searchParams), {
      ids: 'matic-network',
      vs_currencies: 'usd',
      include_last_updated_at: 'true',
      precision: 'full',
    });
  }
  assert.match(
    coingeckoPage({ id: 'x', plan: 'pro', apiKey: 'KEY', baseUrl: undefined }).url,
    /^https:\/\/pro-api\.coingecko\.com\/api\/v3\/simple/,
  );
  const keyless = coingeckoPage({ id: 'x', plan: 'demo', apiKey: '', baseUrl: undefined });
  assert.match(keyless.url, /^https:\/\/api\.coingecko\.com\/api\/v3\/simple/);
  assert.deepEqual(keyless.headers, {});
});

test('a coin that CoinGecko does not list has no price', async () => {
  const { paths } = coingeckoPage({ id: 'ethereum', plan: 'demo', apiKey: '', baseUrl: undefined });
  assert.match(await refusal(body('{}'), paths), /no number where the price/);
});

test('Binance is asked for the last trade of the symbol', async () => {
  await using server = await startReceiver({ answer: body('{"symbol":"ETHUSDT","price":"2500.10000000"}') });
  const page = binancePage({ symbol: 'ETHUSDT', baseUrl: `http://127.0.0.1:${server.port}` });
  const source = httpSource({ pages, clock }, { name: 'binance:ETHUSDT', maxAgeMs: 1, ...page });
  assert.equal((await source.read(signal)).price.toFixed(), '2500.1');
  assert.equal(server.requests[0]?.path, '/api/v3/ticker/price?symbol=ETHUSDT');
  assert.match(
    binancePage({ symbol: 'ETHUSDT', baseUrl: undefined }).url,
    /^https:\/\/api\.binance\.com\/api\/v3/,
  );
});
