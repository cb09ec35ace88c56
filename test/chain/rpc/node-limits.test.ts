import assert from 'node:assert/strict';
import { test } from 'node:test';
import { limitOfError, limitOfHttp } from '../../../src/chain/rpc/node-limits.ts';

const now = new Date('2025-11-20T12:00:00.000Z');

/** Messages of hosted nodes for too many requests, with the pause that they name. */
const tooOften: [code: number, message: string, waitMs?: number | undefined, data?: unknown][] = [
  [-32_005, 'limit exceeded'],
  [-32_005, 'method eth_getBlockReceipts in batch triggered rate limit'],
  [-32_005, 'daily request count exceeded, request rate limited', 30_000, { rate: { backoff_seconds: 30 } }],
  [
    -32_005,
    'limit exceeded, with data that JSON.stringify can’t write',
    undefined,
    JSON.parse('['.repeat(20_000) + ']'.repeat(20_000)),
  ],
  [-32_007, '15/second request limit reached - reduce calls per second or upgrade your account'],
  [-32_016, 'over rate limit'],
  [-32_029, 'Too Many Requests'],
  [
    429,
    'Your app has exceeded its compute units per second capacity. If you have retries enabled, you can safely ignore this message.',
  ],
  [429, 'Monthly capacity limit exceeded. Visit the dashboard to upgrade your scaling policy.'],
  [15, 'Too many request, try again later'],
  [-32_000, 'rate limit exceeded, retry in 10s', 10_000],
  [-32_000, 'call rate limit exhausted, retry in 500 ms', 500],
  [-32_603, 'You have exceeded your daily quota'],
  [-32_000, 'request throttled, please wait 1.5 seconds', 1_500],
  [-32_001, 'You have reached the usage limit of your plan'],
  [-32_001, 'Request limit reached. Try again in 2 Minutes.', 120_000],
];
for (const [code, message, waitMs, data] of tooOften) {
  test(`"${message}" (${code}) means too many requests`, () => {
    const limit = limitOfError({ code, message, data });
    assert.deepEqual([limit?.kind, limit?.kind === 'too often' && limit.waitMs], ['too often', waitMs]);
  });
}

/** geth, Erigon, Nethermind, Besu and gateways, when an answer or a batch is too large for them. */
const tooMuch: [code: number, message: string][] = [
  [-32_600, 'batch too large'],
  [-32_003, 'response too large'],
  [-32_000, 'batch limit 100 exceeded: 142 requests given'],
  [-32_005, 'Batch size limit exceeded'],
  [-32_005, 'Number of requests in batch exceeds max batch size'],
  [31, 'Batch of more than 3 requests are not allowed on free tier'],
  [-32_602, 'too many requests in batch'],
  [-32_008, 'Response is too big'],
];
for (const [code, message] of tooMuch) {
  test(`"${message}" (${code}) means too much data in one request`, () => {
    assert.deepEqual(limitOfError({ code, message }), { kind: 'too much' });
  });
}

for (const [code, message] of [
  [-32_000, 'header not found'],
  [-32_000, 'missing trie node 4f1a (path ) state is not available'],
  [-32_601, 'the method trace_block does not exist/is not available'],
  [-32_600, 'batches are not supported'],
  [-32_005, 'query returned more than 10000 results'],
  [-32_005, 'block range limit exceeded'],
  [-32_000, 'exceeds block gas limit'],
  [-32_000, 'execution timeout'],
  [-32_603, 'internal error'],
  [-32_016, 'debug_traceBlockByHash request was canceled due to enabled timeout.'],
  [3, 'execution reverted: rate limit exceeded'],
  [3, 'slow down'],
  [-32_015, 'VM execution error.'],
  [-32_015, 'rate limit exceeded'],
  [-32_000, 'execution reverted: batch too large'],
  [-32_000, 'VM execution error: too many requests'],
  [-32_000, 'VM Exception while processing transaction: revert daily limit'],
] as const) {
  test(`"${message}" (${code}) says nothing about limits`, () => {
    assert.equal(limitOfError({ code, message }), undefined);
  });
}

test('a daily quota is distinguished from a limit per second', () => {
  const isQuota = (message: string) => {
    const limit = limitOfError({ code: 429, message });
    return limit?.kind === 'too often' && limit.isQuota;
  };
  assert.equal(isQuota('daily request limit reached'), true);
  assert.equal(isQuota('25 requests per second'), false);
});

const http: [name: string, refusal: Partial<Parameters<typeof limitOfHttp>[0]>, limit: string | number][] = [
  ['429 with seconds', { statusCode: 429, retryAfter: '7' }, 7_000],
  ['429 with a date', { statusCode: 429, retryAfter: 'Thu, 20 Nov 2025 12:00:09 GMT' }, 9_000],
  ['429 with a date that is over', { statusCode: 429, retryAfter: 'Thu, 20 Nov 2025 11:00:00 GMT' }, 0],
  ['429 with neither seconds nor a date', { statusCode: 429, retryAfter: 'soon' }, 'unsaid'],
  ['429 without a word', { statusCode: 429 }, 'unsaid'],
  [
    '429 with the wait in its body',
    { statusCode: 429, text: '{"error":{"code":-32005,"data":{"rate":{"backoff_seconds":30.5}}}}' },
    30_500,
  ],
  ['503 with seconds', { statusCode: 503, retryAfter: '120' }, 120_000],
  ['503 without', { statusCode: 503, text: 'too many requests' }, 'none'],
  ['500', { statusCode: 500, retryAfter: '7' }, 'none'],
  [
    '403 with its reason',
    { statusCode: 403, text: '{"error":{"message":"daily quota exceeded"}}' },
    'unsaid',
  ],
  [
    '400 with a revert',
    { statusCode: 400, text: '{"error":{"code":3,"message":"execution reverted: rate limit exceeded"}}' },
    'none',
  ],
  ['429 with a revert', { statusCode: 429, text: 'execution reverted' }, 'unsaid'],
  ['403', { statusCode: 403, text: 'invalid API key' }, 'none'],
  ['413', { statusCode: 413 }, 'too much'],
  ['400 with its reason', { statusCode: 400, text: '{"error":{"message":"batch too large"}}' }, 'too much'],
];
for (const [name, refusal, expected] of http) {
  test(`HTTP ${name}: ${expected}`, () => {
    const limit = limitOfHttp({ statusCode: 200, retryAfter: undefined, text: '', now, ...refusal });
    const found =
      limit === undefined ? 'none' : limit.kind === 'too much' ? 'too much' : (limit.waitMs ?? 'unsaid');
    assert.equal(found, expected);
  });
}
