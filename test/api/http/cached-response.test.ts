import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import {
  type Coding,
  chooseCoding,
  matchTag,
  piecesOf,
  toCachedResponse,
  variantOf,
} from '../../../src/api/http/cached-response.ts';
import { createLargeBodies, LARGE_BYTES_MAX } from '../../../src/api/http/large-bodies.ts';
import { countTurns } from '../turns.ts';

const type = 'application/json; charset=utf-8';
const text = JSON.stringify(Array.from({ length: 500 }, (_, index) => ({ index })));
const untold = () => assert.fail('nothing is made');
const bodyIn = (pieces: readonly string[]) => {
  const body = createLargeBodies(LARGE_BYTES_MAX).open();
  for (const piece of pieces) body.add(piece);
  return body;
};
const bodyOf = ({ body }: Awaited<ReturnType<typeof variantOf>>) => Buffer.concat(piecesOf(body));

test('the tag depends on the bytes alone, not on the pieces they arrive in', async () => {
  const whole = await toCachedResponse({ type, body: text });
  assert.deepEqual(await toCachedResponse({ type, body: Buffer.from(text) }), whole);
  for (const pieces of [[text], [text.slice(0, 7), text.slice(7)], ['', text]]) {
    const kept = await toCachedResponse({ type, body: bodyIn(pieces) });
    assert.deepEqual(kept.identity.headers, whole.identity.headers);
    assert.deepEqual(bodyOf(kept.identity), Buffer.from(text));
  }
  const other = await toCachedResponse({ type, body: `${text} ` });
  assert.notEqual(other.digest, whole.digest);
  assert.match(whole.identity.headers.etag ?? '', /^"[\w-]{22}"$/);
});

test('a body is compressed once for each coding, its size is reported, and it unpacks to the same body', async () => {
  const answer = await toCachedResponse({ type, body: text });
  const more: number[] = [];
  for (const [coding, unpack] of [
    ['br', brotliDecompressSync],
    ['gzip', gunzipSync],
  ] as const) {
    const both = [0, 1].map(async () => variantOf(answer, coding, (bytes) => more.push(bytes)));
    const [variant, same] = await Promise.all(both);
    assert.equal(variant, same);
    assert.equal(variantOf(answer, coding, untold), variant);
    assert.equal(unpack(bodyOf(variant ?? assert.fail())).toString(), text);
    assert.equal(variant?.headers['content-encoding'], coding);
    assert.equal(variant?.headers['content-length'], String(more.at(-1)));
    assert.equal(variant?.headers.etag, `"${answer.digest}-${coding}"`);
  }
  assert.equal(more.length, 2);
});

test('a body that compression does not make smaller is sent uncompressed', async () => {
  const answer = await toCachedResponse({ type, body: randomBytes(5_000) });
  assert.equal(await variantOf(answer, 'gzip', untold), answer.identity);
});

test('a large body stays in pieces, and a small one is joined', async () => {
  const piece = 'ä'.repeat(300_000);
  const large = await toCachedResponse({ type, body: bodyIn([piece, piece]) });
  assert.deepEqual(piecesOf(large.identity.body), [Buffer.from(piece), Buffer.from(piece)]);
  const small = await toCachedResponse({ type, body: bodyIn([text, text]) });
  assert.deepEqual(small.identity.body, Buffer.from(text + text));
});

test('hashing a large body gives way to the event loop after each piece', async () => {
  const body = bodyIn(Array.from({ length: 64 }, () => text));
  const { turns, result } = await countTurns(() => toCachedResponse({ type, body }));
  assert.equal(result.identity.bytes, 64 * text.length);
  assert.ok(turns >= 63, `${turns} turns`);
});

test('If-None-Match matches a list, a weak tag, a tag of any coding, or *', async () => {
  const answer = await toCachedResponse({ type, body: text });
  const tag = `"${answer.digest}"`;
  const gzip = `"${answer.digest}-gzip"`;
  assert.equal(matchTag(tag, answer, 'br'), tag);
  assert.equal(matchTag(`"a", W/${gzip}, "b"`, answer, 'identity'), gzip);
  assert.equal(matchTag('*', answer, 'gzip'), gzip);
  for (const other of ['', '"a"', answer.digest, `"${answer.digest}-zstd"`, '"*"'])
    assert.equal(matchTag(other, answer, 'br'), undefined, other);
});

test('the coding with the highest weight is chosen', () => {
  const cases: [string | undefined, Coding][] = [
    [undefined, 'identity'],
    ['', 'identity'],
    ['gzip', 'gzip'],
    ['gzip, deflate, br, zstd', 'br'],
    ['GZIP;Q=1.0, BR;q=0.5', 'gzip'],
    ['br;q=0, gzip', 'gzip'],
    ['*', 'br'],
    ['*;q=0.1, gzip;q=0.2', 'gzip'],
    ['br;q=0, *', 'gzip'],
    ['gzip;q=0, br;q=0.0', 'identity'],
    ['identity', 'identity'],
    ['gzip;q=nonsense', 'identity'],
    [';;,,;q=', 'identity'],
  ];
  for (const [header, coding] of cases) assert.equal(chooseCoding(header), coding, header);
});
