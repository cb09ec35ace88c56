import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Webhook } from 'standardwebhooks';
import { renderMessage } from '../../src/delivery/payload.ts';
import { generateSigningBytes, readSigningKeys, secretText } from '../../src/domain/signature.ts';
import type { DueNotification } from '../../src/store/delivery/due.ts';

const notification: DueNotification = {
  id: 42,
  shardId: 3,
  laneId: 9,
  watchedAddressId: '0198c7a0-7b1e-7c55-9a58-2f0f3c1d2e3f',
  watcherId: 7,
  hash: `0x${'ab'.repeat(32)}`,
  type: 'TOKEN_TRANSFER',
  sender: `0x${'11'.repeat(20)}`,
  receiver: `0x${'22'.repeat(20)}`,
  amount: 10n ** 78n - 1n,
  token: `0x${'33'.repeat(20)}`,
  createdAt: '2026-01-02 03:04:05.678901',
  createdTime: new Date('2026-01-02T03:04:05.678Z'),
  webhookUrl: 'https://hooks.example.com/a?b="c"',
  revision: 0,
  blockNumber: 120,
  blockHash: `0x${'b1'.repeat(32)}`,
  replaces: undefined,
  retryCount: 2,
  redeliveryCount: 0,
  nextRetryAt: '2026-01-02 03:14:05.678901',
  isOrdered: false,
};
const signingKeys = [readSigningKeys(generateSigningBytes())] as const;
const sending = {
  apiKey: 'wk_1',
  signingKeys,
  nativeSymbol: 'BELL',
  now: new Date('2026-01-02T03:04:06.999Z'),
};

test('the body has the 13 fields of the specification in their order, and all 78 digits of an amount', () => {
  assert.equal(
    renderMessage(notification, sending).body,
    `{"id":42,"watched_addresses_id":"0198c7a0-7b1e-7c55-9a58-2f0f3c1d2e3f","watcher_id":7,"hash":"0x${'ab'.repeat(32)}",` +
      `"type":"TOKEN_TRANSFER","sender":"0x${'11'.repeat(20)}","receiver":"0x${'22'.repeat(20)}","amount":${'9'.repeat(78)},` +
      `"asset":"0x${'33'.repeat(20)}","timestamp":"2026-01-02 03:04:05.678901","webhook_url":"https://hooks.example.com/a?b=\\"c\\"",` +
      `"api_key":"wk_1","next_retry_at":"2026-01-02 03:14:05.678901"}`,
  );
});

test('a coin transfer names the native coin; a missing receiver is an empty string, and a first attempt has no retry time', () => {
  const first = {
    ...notification,
    type: 'COIN_TRANSFER',
    token: undefined,
    receiver: undefined,
    nextRetryAt: undefined,
  } as const;
  const body = JSON.parse(renderMessage(first, sending).body);
  assert.deepEqual([body.asset, body.receiver, body.next_retry_at], ['BELL', '', null]);
});

test('the API key is in header and body if there is one, and in neither without one', () => {
  assert.equal(renderMessage(notification, sending).headers.authorization, 'Bearer wk_1');
  const without = renderMessage(notification, { ...sending, apiKey: undefined });
  assert.equal('authorization' in without.headers, false);
  assert.equal(JSON.parse(without.body).api_key, null);
});

test('all attempts carry the same webhook-id, and each its current webhook-timestamp', () => {
  const { headers, url } = renderMessage(notification, sending);
  assert.equal(url, notification.webhookUrl);
  assert.equal(headers['content-type'], 'application/json');
  assert.match(headers['user-agent'] ?? '', /^chainbell\/\d+\.\d+\.\d+/);
  const later = renderMessage(
    { ...notification, retryCount: 3 },
    { ...sending, now: new Date('2026-01-02T03:14:06Z') },
  ).headers;
  assert.deepEqual([headers['webhook-id'], headers['webhook-timestamp']], ['42', '1767323046']);
  assert.deepEqual([later['webhook-id'], later['webhook-timestamp']], ['42', '1767323646']);
});

test('the signature of each attempt covers exactly its id, its timestamp and its body', () => {
  const webhook = new Webhook(secretText(signingKeys[0]));
  const now = new Date();
  const [first, second] = [notification, { ...notification, nextRetryAt: '2026-01-02 04:14:05.678901' }].map(
    (attempt) => renderMessage(attempt, { ...sending, now }),
  );
  assert(first !== undefined && second !== undefined);
  for (const { body, headers } of [first, second]) assert.ok(webhook.verify(body, headers));
  assert.notEqual(first.headers['webhook-signature'], second.headers['webhook-signature']);
  assert.throws(() => webhook.verify(second.body, first.headers));
});

test('a removal notice, and a later revival of the transfer, are separate messages about the same id', () => {
  const of = (revision: number) => renderMessage({ ...notification, revision }, sending);
  assert.deepEqual(
    [0, 1, 2].map((revision) => [
      of(revision).headers['chainbell-removed'],
      of(revision).headers['webhook-id'],
    ]),
    [
      [undefined, '42'],
      ['true', '42-1'],
      [undefined, '42-2'],
    ],
  );
  assert.deepEqual([of(1).body, of(2).body], [of(0).body, of(0).body]);
});

test('headers name the revision, the block, and the notification that this one replaces', () => {
  const headersOf = (parts: Partial<DueNotification>) =>
    renderMessage({ ...notification, ...parts }, sending).headers;
  const own = (headers: Record<string, string>) =>
    Object.entries(headers).filter(([name]) => name.startsWith('chainbell-'));
  const block = `120 0x${'b1'.repeat(32)}`;
  assert.deepEqual(own(headersOf({})), [
    ['chainbell-revision', '0'],
    ['chainbell-block', block],
  ]);
  assert.deepEqual(own(headersOf({ revision: 1, replaces: 17 })), [
    ['chainbell-revision', '1'],
    ['chainbell-block', block],
    ['chainbell-replaces', '17'],
    ['chainbell-removed', 'true'],
  ]);
  assert.deepEqual(own(headersOf({ blockHash: undefined })), [['chainbell-revision', '0']]);
});
