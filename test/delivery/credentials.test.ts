import assert from 'node:assert/strict';
import { test } from 'node:test';
import { issueKey } from '../../src/app/issue-keys.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { readCredentialsOf } from '../../src/delivery/credentials.ts';
import { createFairSlots } from '../../src/delivery/fair.ts';
import { type DeliveryOptions, runLane } from '../../src/delivery/lane.ts';
import { createDueReader } from '../../src/delivery/reader.ts';
import type { Message } from '../../src/delivery/send.ts';
import { createSettler } from '../../src/delivery/settler.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import { signMessage } from '../../src/domain/signature.ts';
import { releaseLanes } from '../../src/store/delivery/lanes.ts';
import { revokeKey } from '../../src/store/watchers/api-keys.ts';
import { rotateSigningSecret, writeSignsV1a } from '../../src/store/watchers/signing-secrets.ts';
import { leaseDue } from '../kit/attempts.ts';
import { headerOf, later, mine, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { waitUntil } from '../kit/wait.ts';

const keyRing = deriveKeyRing(Buffer.alloc(32, 7));

onSampledDatabase(import.meta.url, ({ database }) => {
  test("a webhook sent more than a second after a revocation or rotation doesn't carry the old key", async () => {
    const clock = createTestClock(later(0));
    const store = { database: database(), keyRing };
    const { watcherId, keyId, key } = await issueKey(store, 'acme', clock.now());
    await watchAddress(database(), { watcherId });
    await mine(database(), headerOf(1), [transferOf(), transferOf(), transferOf()]);
    const [lane] = await leaseDue(database(), { now: clock.now() });
    assert.ok(lane !== undefined);

    // The receiver answers when the test releases it.
    const sent: Message[] = [];
    const answers: (() => void)[] = [];
    const stop = new AbortController();
    const log = silentLog();
    const delivery: DeliveryOptions = {
      ...{ ...store, clock, log, metrics: createMetrics('1.2.3'), nativeSymbol: 'ETH', retryMinutes: [1] },
      send: (message) => {
        sent.push(message);
        return new Promise((resolve) =>
          answers.push(() =>
            resolve({
              outcome: 'success',
              status: 200,
              durationMs: 1,
              requestCount: 1,
              mayHaveArrived: true,
              responseText: undefined,
            }),
          ),
        );
      },
    };
    const run = runLane(lane, {
      ...delivery,
      settler: createSettler({ database: database(), clock, log, signal: stop.signal }),
      reader: createDueReader(delivery),
      // One attempt at a time.
      fair: createFairSlots({
        clock,
        limits: { unproven: 1, proven: 1, hung: 1, open: 1, perOrigin: 1 },
        onCredit: () => {},
      }),
      noteWait: () => {},
      async release(own) {
        await releaseLanes(database(), [own], clock.now());
      },
      ...{ stopping: stop.signal, killed: stop.signal },
    });

    const first = await waitUntil(() => sent[0], { describe: 'the first attempt' });
    assert.equal(first.headers.authorization, `Bearer ${key}`);
    await revokeKey(database(), keyId, clock.now());
    const rotated = await rotateSigningSecret(store, watcherId, { now: clock.now(), overlapMs: 0 });
    clock.advance(1_001);
    answers[0]?.();
    // Its credentials were read together with those of the first.
    const { headers, body } = await waitUntil(() => sent[1], { describe: 'the second attempt' });
    assert.equal(headers.authorization, undefined);
    assert.equal(JSON.parse(body).api_key, null);
    const { 'webhook-id': id = '', 'webhook-timestamp': timestamp = '' } = headers;
    const signature = signMessage(
      { id, timestamp, body },
      rotated.map(({ keys: { hmacKey } }) => ({ hmacKey })),
    );
    assert.equal(headers['webhook-signature'], signature);

    stop.abort();
    for (const answer of answers) answer();
    await run.done;
  });

  test('webhooks carry signatures for the public key only of watchers that want them', async () => {
    const clock = createTestClock(later(0));
    const store = { database: database(), keyRing };
    const { watcherId } = await issueKey(store, 'acme', clock.now());
    const other = await issueKey(store, 'other', clock.now());
    const versionsOf = async (id: number) => {
      const { signingKeys } = await readCredentialsOf({ ...store, clock }, id);
      const header = signMessage({ id: '1', timestamp: '2', body: '{}' }, signingKeys);
      return header.split(' ').map((one) => one.split(',')[0]);
    };
    assert.deepEqual(await versionsOf(watcherId), ['v1']);
    await writeSignsV1a(database(), watcherId, true);
    assert.deepEqual(await versionsOf(watcherId), ['v1', 'v1a']);
    assert.deepEqual(await versionsOf(other.watcherId), ['v1']);
    await writeSignsV1a(database(), watcherId, false);
    assert.deepEqual(await versionsOf(watcherId), ['v1']);
  });
});
