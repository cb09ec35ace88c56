import assert from 'node:assert/strict';
import { test } from 'node:test';
import { issueKey } from '../../src/app/issue-keys.ts';
import { silentLog } from '../../src/core/log.ts';
import type { Message } from '../../src/delivery/send.ts';
import { createTestSender } from '../../src/delivery/test-webhook.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import { sql } from '../../src/store/db/sql.ts';
import { bob, noon, watchAddress } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';

const keyRing = deriveKeyRing(Buffer.alloc(32, 7));
const { signal } = new AbortController();

onSampledDatabase(import.meta.url, ({ database }) => {
  test("a test webhook has the form of any other, is marked as a test, has a zero amount, and isn't stored", async () => {
    const { key, watcherId } = await issueKey({ database: database(), keyRing }, 'acme', noon);
    const record = await watchAddress(database(), { watcherId });
    const sent: Message[] = [];
    const result = {
      outcome: 'http_5xx',
      status: 503,
      durationMs: 12,
      requestCount: 1,
      mayHaveArrived: true,
      responseText: 'down',
    } as const;
    const sendTest = createTestSender({
      database: database(),
      clock: createTestClock(noon),
      log: silentLog(),
      keyRing,
      nativeSymbol: 'BELL',
      send: async (message) => {
        sent.push(message);
        return result;
      },
    });
    const { request, ...outcome } = await sendTest(record, signal);
    assert.deepEqual(outcome, result);
    const [message] = sent;
    assert.equal(message?.url, record.webhookUrl);
    assert.equal(message.headers['webhook-test'], 'true');
    assert.equal(message.headers.authorization, `Bearer ${key}`);
    assert.deepEqual(Object.entries(JSON.parse(message.body)), [
      ['id', 0],
      ['watched_addresses_id', record.id],
      ['watcher_id', watcherId],
      ['hash', `0x${'0'.repeat(64)}`],
      ['type', 'COIN_TRANSFER'],
      ['sender', `0x${'0'.repeat(40)}`],
      ['receiver', bob],
      ['amount', 0],
      ['asset', 'BELL'],
      ['timestamp', '2025-11-20 12:00:00.000000'],
      ['webhook_url', record.webhookUrl],
      ['api_key', key],
      ['next_retry_at', null],
    ]);
    const { headers } = message;
    assert.deepEqual(request, {
      url: message.url,
      headers: { ...headers, authorization: 'Bearer [redacted]', 'webhook-signature': '[redacted]' },
      body: message.body.replace(key, '[redacted]'),
    });
    const rows = await database().query(sql`
      select id from notification_status union all select id from delivery_attempt order by id limit 1`);
    assert.deepEqual(rows, []);
  });
});
