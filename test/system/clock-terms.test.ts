/**
 * Durations while the common clock is set by a day: responses stored for Idempotency-Keys, overlaps of keys and signing
 * secrets, rounds of prices, the order of attempts.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { endKey, issueKey, rotateKey } from '../../src/app/issue-keys.ts';
import { decimal } from '../../src/core/decimal.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { lookupsOf } from '../../src/domain/api-key.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import { createPriceFeed } from '../../src/prices/feed.ts';
import { sql } from '../../src/store/db/sql.ts';
import { createSafeWatermark, listAttemptsBetween } from '../../src/store/delivery/attempts.ts';
import { countFailures } from '../../src/store/delivery/receivers.ts';
import { findFreshPrice } from '../../src/store/prices/prices.ts';
import { findDeliveryKey } from '../../src/store/watchers/api-keys.ts';
import { ANSWER_RETENTION_MS, doOnce } from '../../src/store/watchers/idempotency.ts';
import { listSigningSecrets, rotateSigningSecret } from '../../src/store/watchers/signing-secrets.ts';
import { findWatcher } from '../../src/store/watchers/watchers.ts';
import { headerOf, mine, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTimeStory } from '../kit/common-clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { findKeyOwner } from '../kit/key-owner.ts';
import { addFollowedPair } from '../kit/pair-story.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const EVERY_MS = 30_000;
const never = new AbortController().signal;
const keyRing = deriveKeyRing(Buffer.alloc(32, 7));

onSampledDatabase(import.meta.url, ({ database }) => {
  async function startStory() {
    const story = createTimeStory(database(), [1]);
    const { clock, follow, work } = await story.start();
    return {
      ...{ story, clock, work },
      async set(ms: number) {
        story.step(ms);
        await follow();
      },
    };
  }

  for (const stepMs of [DAY_MS, -DAY_MS]) {
    const days = `${stepMs / DAY_MS} day`;

    test(`a request with an Idempotency-Key is executed once in a day even if the clock is set by ${days}`, async () => {
      const { story, clock, set } = await startStory();
      const { watcherId } = await issueKey({ database: database(), keyRing }, 'acme', clock.now());
      let done = 0;
      const digest = randomBytes(32);
      const ask = () =>
        doOnce(database(), { watcherId, key: 'one', part: 0, digest, now: clock.now() }, async () => {
          done += 1;
          return done;
        });
      await ask();
      await set(stepMs);
      story.advance(ANSWER_RETENTION_MS - MINUTE_MS);
      assert.equal(await ask(), 1);
      story.advance(2 * MINUTE_MS);
      assert.equal(await ask(), 2);
    });

    test(`keys and signing secrets expire on time even if the clock is set by ${days}`, async () => {
      const { story, clock, set } = await startStory();
      const store = { database: database(), keyRing };
      const overlap = () => ({ now: clock.now(), overlapMs: HOUR_MS });
      const old = await issueKey(store, 'acme', clock.now());
      const revoked = await issueKey(store, 'acme', clock.now());
      await rotateKey(store, old.keyId, overlap());
      await endKey(database(), revoked.keyId, clock.now());
      await rotateSigningSecret(store, old.watcherId, overlap());
      const isValid = async ({ key }: { key: string }) =>
        (await findKeyOwner(database(), lookupsOf(key, keyRing), clock.now())) !== undefined;
      const secrets = async () => (await listSigningSecrets(store, old.watcherId, clock.now())).length;
      await set(stepMs);
      story.advance(HOUR_MS - MINUTE_MS);
      assert.deepEqual([await isValid(old), await isValid(revoked), await secrets()], [true, false, 2]);
      story.advance(2 * MINUTE_MS);
      assert.deepEqual([await isValid(old), await isValid(revoked), await secrets()], [false, false, 1]);
    });

    test(`a key that is revoked before a step by ${days} is seen stays revoked`, async () => {
      const { clock, set } = await startStory();
      const { key, keyId } = await issueKey({ database: database(), keyRing }, 'acme', clock.now());
      await endKey(database(), keyId, new Date(clock.now().getTime() + stepMs));
      await set(stepMs);
      const lookups = lookupsOf(key, keyRing);
      assert.equal(await findKeyOwner(database(), lookups, clock.now()), undefined);
    });

    test(`a key that was revoked some hours before a step by ${days} is seen, as during a pause of a machine, stays revoked`, async () => {
      const { story, clock, set } = await startStory();
      const store = { database: database(), keyRing };
      const [revoked, ended] = [
        await issueKey(store, 'acme', clock.now()),
        await issueKey(store, 'acme', clock.now()),
      ];
      await rotateKey(store, ended.keyId, { now: clock.now(), overlapMs: MINUTE_MS });
      story.advance(2 * MINUTE_MS);
      for (const { keyId } of [revoked, ended])
        await endKey(database(), keyId, new Date(clock.now().getTime() + stepMs - 2 * HOUR_MS));
      await set(stepMs);
      for (const { key, keyId, watcherId } of [revoked, ended]) {
        assert.equal(await findKeyOwner(database(), lookupsOf(key, keyRing), clock.now()), undefined);
        assert.notEqual((await findDeliveryKey(database(), watcherId, clock.now()))?.id, keyId);
      }
      assert.equal((await findWatcher(database(), revoked.watcherId, clock.now()))?.validKeyCount, 1);
    });

    test(`the newest success of a webhook is never in the future, even if the clock is set by ${days}`, async () => {
      const { clock, set } = await startStory();
      await database().query(sql`update last_success set at = ${clock.now()}`);
      await set(stepMs);
      const { lastSuccessAt } = await countFailures(database(), clock.now());
      assert.ok(lastSuccessAt !== undefined && lastSuccessAt <= clock.now());
    });

    test(`a running backfill of a pair ends 24 hours before the new time if the clock is set by ${days}, and a complete one stays`, async () => {
      const { set } = await startStory();
      await addFollowedPair(database(), 1);
      await addFollowedPair(database(), 2);
      await database().query(sql`update pair set backfill_number = 9 where id = 2`);
      const untils = async () => {
        const rows = await database().query<{ until: Date }>(
          sql`select backfill_until as until from pair order by id limit 2`,
        );
        return rows.map(({ until }) => until.getTime());
      };
      const [complete = 0, running = 0] = await untils();
      await set(stepMs);
      const [completeAfter, runningAfter = 0] = await untils();
      assert.equal(completeAfter, complete);
      assert.ok(Math.abs(runningAfter - running - stepMs) < MINUTE_MS);
    });

    test(`the last accepted price counts even if the clock is set by ${days}`, async () => {
      const { story, clock, set } = await startStory();
      let said = 0;
      const createFeed = () =>
        createPriceFeed(
          {
            ...{ database: database(), clock, log: silentLog(), metrics: createMetrics('test') },
            isLeader: async () => true,
          },
          {
            ...{ asset: 'BELL', everyMs: EVERY_MS, maxAgeMs: 10 * MINUTE_MS },
            sources: [
              {
                ...{ name: 'one', maxAgeMs: MINUTE_MS },
                async read() {
                  said += 1;
                  return { price: decimal(BigInt(said)), conf: undefined, at: clock.now() };
                },
              },
            ],
          },
        );
      const young = async () => {
        const found = await findFreshPrice(database(), 'BELL', {
          now: clock.now(),
          maxAgeMs: 10 * MINUTE_MS,
        });
        return found && Number(found.price);
      };
      // Rounds whose times come again when the clock is set back.
      const before = createFeed();
      for (const pauseMs of [DAY_MS - 3 * EVERY_MS, EVERY_MS + 1_000, EVERY_MS, EVERY_MS]) {
        await before.step(never);
        story.advance(pauseMs);
      }
      await before.step(never);
      await set(stepMs);
      assert.ok([undefined, said].includes(await young()), 'none is better than one of yesterday');
      const after = createFeed();
      for (let round = 0; round < 4; round += 1) {
        const asked = said;
        await after.step(never);
        assert.equal(said, asked + 1, 'a round is due');
        await createFeed().step(never);
        assert.equal(said, asked + 1, 'another process sees that it was made');
        assert.equal(await young(), said);
        story.advance(EVERY_MS - 1_000);
        assert.equal(await young(), said);
        story.advance(1_000);
      }
    });

    test(`attempts are streamed in the order in which they were made even if the clock is set by ${days}`, async () => {
      const { story, clock, set, work } = await startStory();
      const { watcherId } = await watchAddress(database());
      await mine(database(), headerOf(1), [transferOf()], { now: clock.now() });
      const safeWatermark = createSafeWatermark(database());
      const made = async (after: number) => {
        const upTo = (await safeWatermark()) ?? after;
        return listAttemptsBetween(database(), watcherId, { after, upTo, limit: 10 });
      };
      await work();
      const [first, ...none] = await made(0);
      assert.ok(first !== undefined && none.length === 0);
      await set(stepMs);
      story.advance(MINUTE_MS + 1);
      await work();
      const [second, ...more] = await made(first.id);
      assert.ok(second !== undefined && more.length === 0);
      assert.equal(second.startedAt.getTime() - first.startedAt.getTime(), stepMs + MINUTE_MS + 1);
    });
  }
});
