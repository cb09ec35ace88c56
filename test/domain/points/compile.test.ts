import assert from 'node:assert/strict';
import { test } from 'node:test';
import { compileRules } from '../../../src/domain/points/compile.ts';
import { type EventListener, isInForce, type Rules } from '../../../src/domain/points/rules.ts';
import type {
  AccrualRuleText,
  EventRuleText,
  PointsText,
  Surroundings,
} from '../../../src/domain/points/text.ts';
import { type TokenInfo, tokenAt, tokensBySymbol } from '../../../src/domain/points/tokens.ts';
import { dayOf, dayText, parseDay, startOf } from '../../../src/domain/points/window.ts';
import { addressOf } from '../../kit/chain-story.ts';

const [usdt, wrapped, reward, doge, odd] = [1, 2, 3, 4, 5].map(addressOf) as [
  `0x${string}`,
  `0x${string}`,
  `0x${string}`,
  `0x${string}`,
  `0x${string}`,
];
const pair = (id: number, token0: `0x${string}`, token0Decimals: number) => ({
  ...{ id, token0, token1: wrapped, token0Decimals, token1Decimals: 18 },
  address: addressOf(0x100 + id),
});
const surroundings: Surroundings = {
  nativeSymbol: 'ETH',
  rewardSymbol: 'RWD',
  wrapped,
  feeds: { ETH: {}, RWD: {}, DOGE: {} },
  tokens: {
    USDT: { address: usdt, decimals: 6, usd: 1 },
    DOGE: { address: doge, decimals: 8 },
  },
  pairs: [pair(1, reward, 18), pair(2, usdt, 6), pair(4, odd, 18), pair(5, doge, 8)],
};

const event: EventRuleText = {
  type: 'event',
  id: 'pay',
  version: 1,
  category: 'trading',
  source: { event: 'Paid(address indexed user, uint256 amount)', contracts: ['token:USDT'] },
  user: 'arg:user',
  points: 'amount(amount, token)',
};
const accrual: AccrualRuleText = {
  type: 'accrual',
  id: 'hold',
  version: 1,
  category: 'holding',
  token: 'pair:2',
  points: 'amount(balanceSeconds, token) / 86400',
};

function compile(rules: PointsText['rules'], more: Partial<PointsText> = {}) {
  const { rules: compiled, problems } = compileRules({ seasons: {}, rules, ...more }, surroundings);
  return { compiled, said: problems.map(({ path, message }) => `${path.join('.')}: ${message}`) };
}

const eventRules = ({ listeners }: Rules): EventListener[] =>
  listeners.filter((one): one is EventListener => one.kind === 'event');

test('the example rules compile without problems', () => {
  const { said, compiled } = compile([event, accrual]);
  assert.deepEqual(said, []);
  assert.deepEqual(
    compiled.listeners.map(({ kind }) => kind),
    ['event', 'movement', 'movement'],
  );
});

const wrong: [promise: string, rule: object, problem: string | RegExp][] = [
  [
    'an unknown pair',
    { source: { ...event.source, contracts: ['pair:9'] } },
    'rules.0.source.contracts.0: no pair has the id 9',
  ],
  [
    'an unknown token',
    { source: { ...event.source, contracts: ['token:ABC'] } },
    'rules.0.source.contracts.0: no token has the symbol ABC',
  ],
  [
    'a user that is not an address',
    { user: 'arg:amount' },
    /^rules\.0\.user: "amount" is not an argument of the event with an address: use user$/,
  ],
  [
    'an invalid signature',
    { source: { ...event.source, event: 'Paid(uint257 x)' } },
    /^rules\.0\.source\.event: "uint257"/,
  ],
  [
    'an unknown name in an expression',
    { points: 'amnt' },
    /^rules\.0\.points: "amnt" is not a readable argument/,
  ],
  [
    'a condition that is a number',
    { when: 'amount' },
    'rules.0.when: must be true or false, and is an integer',
  ],
  [
    'token0 if not all contracts are pairs',
    { points: 'amount(amount, token0)' },
    /^rules\.0\.points: "token0" is not a known token/,
  ],
  [
    'an unknown season',
    { multipliers: [{ season: 's9', x: 2 }] },
    'rules.0.multipliers.0.season: no season is named s9',
  ],
  [
    'a window that ends before it begins',
    { from: 9, to: 9 },
    'rules.0.to: must be after 9: the rule ends before this day or block',
  ],
  [
    'a referral share without a referral',
    { referralShare: 0.5 },
    'rules.0.referralShare: needs points.referral, which defines the referrals',
  ],
];

for (const [promise, parts, problem] of wrong) {
  test(`${promise} is a problem`, () => {
    const { said } = compile([{ ...event, ...parts }]);
    assert.equal(said.length, 1, said.join('\n'));
    if (problem instanceof RegExp) assert.match(said[0] ?? '', problem);
    else assert.equal(said[0], problem);
  });
}

test('an accrual rule needs exactly one balance, and whole days', () => {
  const { token: _none, ...without } = accrual;
  assert.deepEqual(compile([{ ...without, points: '1' }]).said, ['rules.0: needs either token or movements']);
  assert.deepEqual(compile([{ ...accrual, from: 7 }]).said, [
    'rules.0.from: must be a day, because accrual rules count whole days',
  ]);
  assert.deepEqual(compile([{ ...accrual, points: 'usd(balanceSeconds, token)' }]).said, [
    'rules.0.points: "token" has no price: give it one under tokens (usd) or prices',
  ]);
  const movements = [{ ...event.source, user: 'arg:user', change: 'amount / 2' }];
  assert.match(
    compile([{ ...without, movements }]).said[0] ?? '',
    /must be an integer, and is a number: use floor/,
  );
});

test('versions of a rule must be in order, have a start, and use the same balance', () => {
  const second = { ...event, version: 2, from: '2026-02-01' };
  assert.deepEqual(compile([event, second]).said, []);
  assert.deepEqual(compile([second, event]).said, [
    'rules.1.version: must be more than 2, the version of pay before it',
  ]);
  assert.deepEqual(compile([event, event]).said, [
    'rules.1.version: must be more than 1, the version of pay before it',
  ]);
  assert.deepEqual(compile([event, { ...event, version: 2 }]).said, [
    'rules.1.version: needs "from": when it takes the place of version 1',
  ]);
  assert.deepEqual(compile([event, { ...accrual, id: 'pay', version: 2, from: '2026-02-01' }]).said, [
    'rules.1.type: must be event, as in the version before it',
  ]);
  assert.deepEqual(compile([accrual, { ...accrual, version: 2, from: '2026-02-01', token: 'pair:1' }]).said, [
    'rules.1.version: counts another balance than the version before it: give it a different id',
  ]);
});

test('a new version replaces the previous one at its start, which is a day or a block', () => {
  const rules = [
    { ...event, from: 10 },
    { ...event, version: 2, from: '2026-02-01' },
    { ...event, version: 3, from: 100, to: 200 },
  ];
  const versions = eventRules(compile(rules).compiled).map(({ rule }) => rule);
  const holdsAt = (number: number, time: string) =>
    versions
      .filter((rule) => isInForce(rule, { number, minedAt: new Date(time) }))
      .map(({ version }) => version);
  assert.deepEqual(holdsAt(9, '2026-01-31T23:59:59Z'), []);
  assert.deepEqual(holdsAt(10, '2026-01-31T23:59:59Z'), [1]);
  assert.deepEqual(holdsAt(11, '2026-02-01T00:00:00Z'), [2]);
  assert.deepEqual(holdsAt(99, '2026-02-02T00:00:00Z'), [2]);
  assert.deepEqual(holdsAt(100, '2026-02-02T00:00:00Z'), [3]);
  assert.deepEqual(holdsAt(200, '2026-03-02T00:00:00Z'), []);
});

test('a token has a fixed value, or the price of the wrapped coin, the reward token or its symbol, or no price', () => {
  const priceOf = (info: TokenInfo | undefined) => {
    const price = info?.price;
    return price === undefined ? undefined : 'usd' in price ? 'fixed' : price.asset;
  };
  assert.deepEqual(
    [usdt, wrapped, reward, doge, odd, addressOf(0x102), addressOf(99)].map((one) =>
      priceOf(tokenAt(surroundings, one)),
    ),
    ['fixed', 'ETH', 'RWD', 'DOGE', undefined, undefined, undefined],
  );
  assert.deepEqual([...tokensBySymbol(surroundings).keys()], ['ETH', 'RWD', 'USDT', 'DOGE']);
});

test('days are days in UTC, and an impossible day is refused', () => {
  assert.equal(parseDay('2026-02-30'), undefined);
  assert.equal(parseDay('2026-2-3'), undefined);
  assert.equal(parseDay('2024-02-29'), dayOf(new Date('2024-02-29T23:59:59.999Z')));
  assert.equal(dayText(dayOf(new Date('1999-12-31T23:59:59Z')) + 1), '2000-01-01');
  assert.equal(startOf(0).getTime(), 0);
});
