import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deriveKeyRing } from '../../src/core/key-ring.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { signMessage } from '../../src/core/signature.ts';
import { runLane } from '../../src/delivery/lane.ts';
import type { Message } from '../../src/delivery/payload.ts';
import { createSettler } from '../../src/delivery/settler.ts';
import { createSlots } from '../../src/delivery/slots.ts';
import { issueKey } from '../../src/keys.ts';
import { revokeKey } from '../../src/store/keys.ts';
import { leaseLanes } from '../../src/store/lanes.ts';
import { rotateSigningSecret } from '../../src/store/signing-secrets.ts';
import { headerOf, later, mine, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onEachDatabase } from '../kit/each-database.ts';
import { waitUntil } from '../kit/wait.ts';

const keyRing = deriveKeyRing(Buffer.alloc(32, 7));

onEachDatabase(({ database }) => {
  test('what is sent more than a second after a revocation or rotation carries nothing of the former', async () => {
    const clock = createTestClock(later(0));
    const store = { database: database(), keyRing };
    const { watcherId, keyId, key } = await issueKey(store, 'acme', clock.now());
    await watchAddress(database(), { watcherId });
    await mine(database(), headerOf(1), [transferOf(), transferOf(), transferOf()]);
    const [lane] = await leaseLanes(database(), {
      owner: 1,
      now: clock.now(),
      leaseUntil: later(1e9),
      limit: 1,
    });
    assert.ok(lane !== undefined);

    // One attempt at a time, answered when the test says so.
    const sent: Message[] = [];
    const answers: (() => void)[] = [];
    const stop = new AbortController();
    const log = silentLog();
    const run = runLane(lane, {
      ...store,
      clock,
      log,
      metrics: createMetrics('1.2.3'),
      nativeSymbol: 'ETH',
      retryMinutes: [1],
      settler: createSettler({ database: database(), clock, log, signal: stop.signal }),
      slots: createSlots({ all: 1, doubtful: 1, perOrigin: 1 }),
      concurrency: undefined,
      stopping: stop.signal,
      killed: stop.signal,
      send: (message) => {
        sent.push(message);
        return new Promise((resolve) =>
          answers.push(() =>
            resolve({
              outcome: 'success',
              status: 200,
              durationMs: 1,
              mayHaveArrived: true,
              responseText: undefined,
            }),
          ),
        );
      },
    });

    const first = await waitUntil(() => sent[0], { describe: 'the first attempt' });
    assert.equal(first.headers.authorization, `Bearer ${key}`);
    await revokeKey(database(), keyId, clock.now());
    const rotated = await rotateSigningSecret(store, watcherId, { now: clock.now(), overlapMs: 0 });
    clock.advance(1_001);
    answers[0]?.();
    // It was read together with the first.
    const { headers, body } = await waitUntil(() => sent[1], { describe: 'the second attempt' });
    assert.equal(headers.authorization, undefined);
    assert.equal(JSON.parse(body).api_key, null);
    const { 'webhook-id': id = '', 'webhook-timestamp': timestamp = '' } = headers;
    const signature = signMessage(
      { id, timestamp, body },
      rotated.map(({ keys }) => keys),
    );
    assert.equal(headers['webhook-signature'], signature);

    stop.abort();
    for (const answer of answers) answer();
    await run.done;
  });
});
