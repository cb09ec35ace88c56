import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { decimal, decimalText } from '../../src/core/decimal.ts';
import { decidePrice, type Observation } from '../../src/domain/price-decision.ts';

const now = new Date('2025-11-20T12:00:00.000Z');
const MAX_AGE_MS = 60_000;

type Said = { price: string; conf?: string; ageMs?: number };

const observe = ({ price, conf, ageMs = 0 }: Said): Observation => ({
  price: decimal(price),
  conf: conf === undefined ? undefined : decimal(conf),
  at: new Date(now.getTime() - ageMs),
  maxAgeMs: MAX_AGE_MS,
});

/** The decision as text: price, verdicts, and whether it is disputed. */
function decide(said: readonly (string | Said)[], last?: string) {
  const observations = said.map((one) => observe(typeof one === 'string' ? { price: one } : one));
  const decision = decidePrice(observations, { now, last: last === undefined ? undefined : decimal(last) });
  return {
    price: decision.price === undefined ? undefined : decimalText(decision.price),
    verdicts: decision.judged.map(({ verdict }) => verdict),
    isDisputed: decision.isDisputed,
  };
}

test('without observations there is no price', () => {
  assert.deepEqual(decide([]), { price: undefined, verdicts: [], isDisputed: false });
  assert.deepEqual(decide([], '100').price, undefined);
});

test('a single observation becomes the price with all its digits', () => {
  const price = '2500.123456789012345678901234567890123456';
  assert.deepEqual(decide([price]), { price, verdicts: ['used'], isDisputed: false });
});

test('stale, non-positive and too uncertain observations are not used', () => {
  const said = [
    { price: '100', ageMs: MAX_AGE_MS },
    { price: '100', ageMs: MAX_AGE_MS + 1 },
    { price: '100', ageMs: -60_001 },
    { price: '0' },
    { price: '-100' },
    { price: '100', conf: '1' },
    { price: '100', conf: '1.000000000000000001' },
  ];
  assert.deepEqual(decide(said).verdicts, [
    'used',
    'stale',
    'stale',
    'not_positive',
    'not_positive',
    'used',
    'uncertain',
  ]);
});

test('two observations that differ by at most 3 % give their exact mean', () => {
  assert.deepEqual(decide(['98.5', '101.5']), {
    price: '100',
    verdicts: ['used', 'used'],
    isDisputed: false,
  });
  assert.equal(decide(['1.000000000000000001', '1.000000000000000002']).price, '1.0000000000000000015');
});

test('a price is agreed if at least two observations agree, and more than half of them', () => {
  const isAgreed = (said: readonly string[], last?: string) =>
    decidePrice(
      said.map((price) => observe({ price })),
      { now, last: last === undefined ? undefined : decimal(last) },
    ).isAgreed;
  assert.equal(isAgreed(['100', '101']), true);
  assert.equal(isAgreed(['100', '101', '200']), true);
  assert.equal(isAgreed(['100']), false, 'nothing confirms a single one');
  assert.equal(isAgreed(['100', '200'], '100'), false);
  assert.equal(isAgreed(['100', '101', '200', '201'], '100'), false);
  assert.equal(isAgreed([]), false);
});

test('of two observations that differ by more, the one nearer to the last accepted price is used, and the price is disputed', () => {
  const said = ['98.499', '101.501'];
  assert.deepEqual(decide(said, '101'), {
    price: '101.501',
    verdicts: ['outlier', 'used'],
    isDisputed: true,
  });
  assert.deepEqual(decide(said, '90'), { price: '98.499', verdicts: ['used', 'outlier'], isDisputed: true });
  assert.equal(decide(['90', '110'], '100').price, '90', 'of two that are equally near, the first');
});

test('two observations that differ by more give no price if none was accepted before', () => {
  assert.deepEqual(decide(['90', '110']), {
    price: undefined,
    verdicts: ['outlier', 'outlier'],
    isDisputed: true,
  });
});

test('of three observations, one that is more than 5 % from the median is dropped', () => {
  assert.deepEqual(decide(['100', '105', '105.000001']), {
    price: '105',
    verdicts: ['used', 'used', 'used'],
    isDisputed: false,
  });
  assert.deepEqual(decide(['100', '94.999', '100.2']), {
    price: '100.1',
    verdicts: ['used', 'outlier', 'used'],
    isDisputed: false,
  });
});

test('of three observations that all disagree, the middle one is used, and the price is disputed', () => {
  assert.deepEqual(decide(['300', '100', '200']), {
    price: '200',
    verdicts: ['outlier', 'outlier', 'used'],
    isDisputed: true,
  });
});

test('the last accepted price decides between two groups of the same size', () => {
  const said = ['100', '101', '200', '201'];
  assert.equal(decide(said).price, undefined);
  assert.deepEqual(decide(said, '210'), {
    price: '201',
    verdicts: ['outlier', 'outlier', 'outlier', 'used'],
    isDisputed: true,
  });
});

const price = fc
  .tuple(fc.bigInt({ min: 1n, max: 10n ** 30n }), fc.integer({ min: 0, max: 24 }))
  .map(([digits, exponent]) => decimal(`${digits}e-${exponent}`));
const sound = price.map((value): Observation => ({ ...observe({ price: '1' }), price: value }));

test('the price lies between the lowest and the highest used observation', () => {
  fc.assert(
    fc.property(
      fc.array(sound, { maxLength: 9 }),
      fc.option(price, { nil: undefined }),
      (observations, last) => {
        const decision = decidePrice(observations, { now, last });
        const used = decision.judged.filter(({ verdict }) => verdict === 'used');
        assert.equal(decision.price === undefined, used.length === 0);
        if (last !== undefined) assert.equal(used.length > 0, observations.length > 0);
        if (decision.price === undefined) return;
        const prices = used.map(({ observation }) => observation.price).sort((one, other) => one.cmp(other));
        assert.ok(prices[0]?.lte(decision.price) && prices.at(-1)?.gte(decision.price));
      },
    ),
  );
});

test('excluded observations do not change the price', () => {
  const doubtful = fc.constantFrom(
    observe({ price: '7', ageMs: MAX_AGE_MS + 1 }),
    observe({ price: '0' }),
    observe({ price: '7', conf: '1' }),
  );
  fc.assert(
    fc.property(
      fc.array(sound, { maxLength: 6 }),
      fc.array(doubtful, { maxLength: 6 }),
      price,
      (good, bad, last) => {
        const alone = decidePrice(good, { now, last });
        const together = decidePrice([...bad, ...good], { now, last });
        assert.deepEqual(together.price?.toFixed(), alone.price?.toFixed());
        assert.equal(together.isDisputed, alone.isDisputed);
      },
    ),
  );
});

test('while a majority agrees, the other observations cannot move the price out of its range', () => {
  const close = fc.array(
    fc.integer({ min: 10_000, max: 10_200 }).map((value) => observe({ price: String(value) })),
    { minLength: 3, maxLength: 7 },
  );
  fc.assert(
    fc.property(close, fc.array(sound, { maxLength: 6 }), (honest, others) => {
      const liars = others.slice(0, honest.length - 1);
      const decision = decidePrice([...liars, ...honest], { now, last: undefined });
      assert.ok(decision.price?.gte('9500') && decision.price.lte('10710'), decision.price?.toFixed());
      // Honest observations are within 2 % of each other, so none is more than 5 % from a median that lies among them.
      for (const { observation, verdict } of decision.judged)
        if (honest.includes(observation)) assert.equal(verdict, 'used');
    }),
  );
});

test('the order of sources that agree does not matter', () => {
  const close = fc.integer({ min: 10_000, max: 10_200 }).map((value) => observe({ price: String(value) }));
  fc.assert(
    fc.property(fc.array(close, { minLength: 1, maxLength: 7 }), (observations) => {
      const forwards = decidePrice(observations, { now, last: undefined });
      const backwards = decidePrice(observations.toReversed(), { now, last: undefined });
      assert.equal(forwards.price?.toFixed(), backwards.price?.toFixed());
    }),
  );
});
