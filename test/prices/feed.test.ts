import assert from 'node:assert/strict';
import { test } from 'node:test';
import { abortOf } from '../../src/core/abort.ts';
import { decimal, decimalText } from '../../src/core/decimal.ts';
import { Fault } from '../../src/core/fault.ts';
import { silentLog } from '../../src/core/log.ts';
import { createMetrics } from '../../src/core/metrics.ts';
import { createPriceFeed } from '../../src/prices/feed.ts';
import type { PriceSource } from '../../src/prices/sources.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { findLastRound } from '../../src/store/prices/price-rounds.ts';
import { findPrice } from '../../src/store/prices/prices.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';

const EVERY_MS = 30_000;
const MAX_AGE_MS = 600_000;
const { signal } = new AbortController();

/** A feed whose sources return what the test sets. A text that isn't a number is the reason why a source has no price. */
function createStory(database: Database, said: Record<string, string>) {
  const clock = createTestClock();
  const metrics = createMetrics('test');
  const story = { said, isLeader: true, isCutOff: false, asked: 0, beforeAnswer: async () => {} };
  const sources = Object.keys(said).map(
    (name): PriceSource => ({
      name,
      maxAgeMs: 60_000,
      async read() {
        story.asked += 1;
        await story.beforeAnswer();
        const text = story.said[name] ?? '';
        if (!/^[\d.]+$/.test(text)) throw new Fault('unavailable', text);
        return { price: decimal(text), conf: undefined, at: clock.now() };
      },
    }),
  );
  const isLeader = async () => {
    if (story.isCutOff) throw new Fault('unavailable', 'the database is away');
    return story.isLeader;
  };
  const createProcess = (one: Database = database) =>
    createPriceFeed(
      { database: one, clock, log: silentLog(), metrics, isLeader },
      { asset: 'BELL', everyMs: EVERY_MS, maxAgeMs: MAX_AGE_MS, sources },
    );
  return Object.assign(story, { clock, metrics, createProcess, ...createProcess() });
}

const listPrices = async (database: Database) =>
  (await database.query<{ price: string }>(sql`select price from price order by id`)).map(
    ({ price }) => price,
  );

onSampledDatabase(import.meta.url, ({ database }) => {
  test("a round stores the decided price and every source's answer", async () => {
    const long = '100.123456789012345678901234567890123456';
    const { step, clock } = createStory(database(), {
      one: long,
      two: 'no\0answer',
      three: '100',
      four: '120',
    });
    assert.equal(await step(signal), 'idle');
    const price = await findPrice(database(), 'BELL', clock.now());
    assert.deepEqual(
      { ...price, price: price?.price.toFixed() },
      {
        id: 1,
        asset: 'BELL',
        price: '100.061728394506172839450617283945061728',
        observedAt: clock.now(),
        source: 'one, three',
      },
    );
    const round = await findLastRound(database(), 'BELL');
    assert.deepEqual(round?.at, clock.now());
    assert.deepEqual(
      round?.reports.map(({ source, verdict, price: said, message }) => [
        source,
        verdict,
        said === undefined ? message : decimalText(said),
      ]),
      [
        ['one', 'used', long],
        ['three', 'used', '100'],
        ['four', 'outlier', '120'],
        ['two', 'failed', 'no\ufffdanswer'],
      ],
    );
  });

  test('rounds happen on schedule, and a source that failed is asked again in the next one', async () => {
    const story = createStory(database(), { one: 'no answer' });
    await story.step(signal);
    assert.deepEqual(await listPrices(database()), []);
    assert.equal(story.idleMs(), 10_000);
    story.said = { one: '7' };
    story.clock.advance(EVERY_MS - 1);
    await story.step(signal);
    assert.equal(story.idleMs(), 1);
    assert.equal(story.asked, 1);
    story.clock.advance(1);
    await story.step(signal);
    assert.deepEqual(await listPrices(database()), ['7']);
  });

  test('another process continues the rounds where the first one ended', async () => {
    const story = createStory(database(), { one: '7' });
    await story.step(signal);
    const successor = story.createProcess();
    await successor.step(signal);
    assert.equal(story.asked, 1);
    assert.equal(successor.idleMs(), 10_000);
    story.clock.advance(EVERY_MS);
    await successor.step(signal);
    assert.deepEqual(await listPrices(database()), ['7', '7']);
  });

  test('of two processes that both believe they lead, only one stores the round', async () => {
    const story = createStory(database(), { one: '7' });
    const both = Promise.withResolvers<void>();
    story.beforeAnswer = () => {
      if (story.asked === 2) both.resolve();
      return both.promise;
    };
    await Promise.all([story.step(signal), story.createProcess().step(signal)]);
    assert.deepEqual(await listPrices(database()), ['7']);
    story.clock.advance(EVERY_MS);
    await story.step(signal);
    assert.deepEqual(await listPrices(database()), ['7', '7']);
  });

  test('a process that does not lead asks no source, and soon checks again whether it leads', async () => {
    const story = createStory(database(), { one: '7' });
    story.isLeader = false;
    await story.step(signal);
    assert.equal(story.asked, 0);
    assert.ok(story.idleMs() <= 2_000);
    story.isLeader = true;
    await story.step(signal);
    assert.equal(story.asked, 1);
  });

  test('the last price decides between two sources that disagree, as long as it is young enough', async () => {
    const story = createStory(database(), { one: '100', two: '101' });
    await story.step(signal);
    story.said = { one: '100', two: '200' };
    story.clock.advance(EVERY_MS);
    await story.step(signal);
    assert.deepEqual(await listPrices(database()), ['100.5', '100']);
    assert.match(await story.metrics.registry.metrics(), /price_disputed\{asset="BELL"\} 1\n/);
    story.isLeader = false;
    await story.step(signal);
    assert.doesNotMatch(
      await story.metrics.registry.metrics(),
      /price_disputed\{/,
      'another process reports it',
    );
    story.isLeader = true;
    story.clock.advance(EVERY_MS);
    await story.step(signal);
    assert.match(await story.metrics.registry.metrics(), /price_disputed\{asset="BELL"\} 1\n/);
    story.isCutOff = true;
    await assert.rejects(async () => story.step(signal), { code: 'unavailable' });
    assert.match(
      await story.metrics.registry.metrics(),
      /price_disputed\{asset="BELL"\} 1\n/,
      'the dispute outlasts a short loss of the database',
    );
    story.clock.advance(EVERY_MS + 1);
    await assert.rejects(async () => story.step(signal), { code: 'unavailable' });
    assert.doesNotMatch(await story.metrics.registry.metrics(), /price_disputed\{/, 'another one leads');
    story.isCutOff = false;
    story.said = { one: 'no answer', two: 'no answer' };
    for (let elapsedMs = 0; elapsedMs <= MAX_AGE_MS; elapsedMs += EVERY_MS) {
      story.clock.advance(EVERY_MS);
      await story.step(signal);
    }
    story.said = { one: '100', two: '200' };
    story.clock.advance(EVERY_MS);
    await story.step(signal);
    assert.deepEqual(await listPrices(database()), ['100.5', '100', '100']);
  });

  test('a hostile source of two does not move the price further in each round, whichever process leads', async () => {
    const story = createStory(database(), { honest: '100', hostile: '103' });
    await story.step(signal);
    let last = 101.5;
    for (let round = 0; round < 16; round += 1) {
      // Nearly as far above the last price as the honest source is below it, or as high as still agrees with that one.
      const mirrored = last + (last - 99) * 0.98;
      story.said = { honest: '99', hostile: String(mirrored > 99 * 1.0306 ? mirrored : 99 * 1.0304) };
      story.clock.advance(EVERY_MS);
      await story.createProcess().step(signal);
      last = Number((await findPrice(database(), 'BELL', story.clock.now()))?.price);
    }
    const prices = (await listPrices(database())).map(Number);
    assert.equal(prices.length, 17);
    // Once, because the honest source has fallen by 1 % since both agreed.
    assert.ok(Math.max(...prices) < 104, `the highest price is ${Math.max(...prices)}`);
  });

  test('the price on which sources agreed decides no longer because it has decided', async () => {
    const story = createStory(database(), { one: '100', two: '101' });
    await story.step(signal);
    story.said = { one: '100', two: '200' };
    for (let elapsedMs = EVERY_MS; elapsedMs <= MAX_AGE_MS + EVERY_MS; elapsedMs += EVERY_MS) {
      story.clock.advance(EVERY_MS);
      await story.step(signal);
    }
    assert.equal((await listPrices(database())).length, 1 + MAX_AGE_MS / EVERY_MS);
  });

  test('the price of a source that was alone for a round does not decide between two', async () => {
    const story = createStory(database(), { honest: '100', hostile: '101' });
    await story.step(signal);
    story.said = { honest: 'no answer', hostile: '200' };
    story.clock.advance(EVERY_MS);
    await story.step(signal);
    story.said = { honest: '100', hostile: '200' };
    story.clock.advance(EVERY_MS);
    await story.step(signal);
    assert.deepEqual(await listPrices(database()), ['100.5', '200', '100']);
  });

  test('a source that was always alone decides when another one comes that disagrees, and that one never does', async () => {
    const story = createStory(database(), { old: '100', added: 'no answer' });
    await story.step(signal);
    for (const [old, added] of [
      ['101', '90'],
      ['104', '107.9'],
      ['103', '104.8'],
    ] as const) {
      story.said = { old, added };
      story.clock.advance(EVERY_MS);
      await story.step(signal);
    }
    assert.deepEqual(await listPrices(database()), ['100', '101', '104', '103.9']);
  });

  test('a clock that was set back does not delay the rounds', async () => {
    const story = createStory(database(), { one: '7' });
    story.clock.advance(3_600_000);
    await story.step(signal);
    story.clock.advance(-1_800_000);
    await story.step(signal);
    assert.equal(story.asked, 2);
    assert.equal(story.idleMs(), 10_000);
  });

  test('of two processes in the same round, the one that stores too late reports nothing', async () => {
    const story = createStory(database(), { one: '7' });
    const slow = story.createProcess();
    story.beforeAnswer = async () => {
      story.beforeAnswer = async () => {};
      await story.step(signal);
    };
    await slow.step(signal);
    assert.equal(story.asked, 2);
    assert.deepEqual(await listPrices(database()), ['7']);
    const text = await story.metrics.registry.metrics();
    assert.match(text, /^chainbell_price_observations_total\{asset="BELL",source="one",verdict="used"\} 1$/m);
  });

  test('an unavailable database is a Fault, and the round is repeated', async () => {
    const story = createStory(database(), { one: '7' });
    let isAway = true;
    const unreliable: Database = {
      ...database(),
      transaction: async (work) => {
        if (isAway) throw new Fault('unavailable', 'database: away');
        return database().transaction(work);
      },
    };
    const { step } = story.createProcess(unreliable);
    await assert.rejects(step(signal), Fault);
    isAway = false;
    await step(signal);
    assert.deepEqual(await listPrices(database()), ['7']);
  });

  test('a source that does not answer in time fails alone', async (context) => {
    context.mock.timers.enable({ apis: ['setTimeout'] });
    const clock = createTestClock();
    const asked = Promise.withResolvers<void>();
    const hanging: PriceSource = {
      name: 'hanging',
      maxAgeMs: 1,
      async read(abort) {
        asked.resolve();
        await abortOf(abort);
        abort.throwIfAborted();
        throw new Error('it has aborted');
      },
    };
    const quick: PriceSource = {
      name: 'quick',
      maxAgeMs: 60_000,
      read: async () => ({ price: decimal('7'), conf: undefined, at: clock.now() }),
    };
    const options = { clock, log: silentLog(), metrics: createMetrics('test'), isLeader: async () => true };
    const feed = { asset: 'BELL', everyMs: EVERY_MS, maxAgeMs: MAX_AGE_MS, sources: [hanging, quick] };
    const { step } = createPriceFeed({ database: database(), ...options }, feed);
    const stepping = step(signal);
    await asked.promise;
    context.mock.timers.tick(10_000);
    context.mock.timers.reset();
    await stepping;
    const round = await findLastRound(database(), 'BELL');
    assert.deepEqual(
      round?.reports.map(({ verdict, message }) => [verdict, message]),
      [
        ['used', undefined],
        ['failed', 'no answer within 10000 ms'],
      ],
    );
  });
});
