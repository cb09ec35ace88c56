/**
 * The verdict of every rule about every log: the award, or the step that refused it.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ExplainOptions, explainLogs } from '../../src/audit/explain.ts';
import { encodeWord } from '../../src/core/abi.ts';
import { decimal } from '../../src/core/decimal.ts';
import { type Address, type Hash, zeroAddress } from '../../src/core/hex.ts';
import type { Award } from '../../src/domain/award.ts';
import { parseEventSignature } from '../../src/domain/event-signature.ts';
import { compileRules } from '../../src/domain/points/compile.ts';
import type { EventRuleText } from '../../src/domain/points/text.ts';
import { insertAwards } from '../../src/store/points/awards.ts';
import { insertPrice } from '../../src/store/prices/prices.ts';
import { addressOf, alice, bob, carol, hashOf, headerOf, later } from '../kit/chain-story.ts';
import { onSampledDatabase } from '../kit/each-database.ts';

const [shop, gem, elsewhere] = [0x5001, 0x5002, 0x5003].map(addressOf) as [Address, Address, Address];
const PAID = 'Paid(address indexed user, uint256 amount)';
const REFERRED = 'Referred(address indexed user, address indexed referrer)';
const block = headerOf(50);
const TX = hashOf(0x77);

const rule = (id: string, parts: Partial<EventRuleText> = {}): EventRuleText => ({
  ...{ type: 'event', id, version: 1, category: 'trading', user: 'arg:user', points: 'amount' },
  source: { event: PAID, contracts: [shop] },
  ...parts,
});

const compile = (...rules: EventRuleText[]) => compileWith({}, rules);

function compileWith(feed: { maxAgeMs?: number }, rules: EventRuleText[]) {
  const compiled = compileRules(
    {
      seasons: {},
      referral: {
        ...{ source: { event: REFERRED, contracts: [shop] }, user: 'arg:user', referrer: 'arg:referrer' },
        ...{ share: 0.1, firstWins: true, noSelf: true },
      },
      rules: [
        ...rules,
        {
          ...{ type: 'accrual', id: 'hold', version: 1, category: 'holding', points: 'balanceSeconds' },
          movements: [
            { event: PAID, contracts: [gem], user: 'arg:user', change: 'amount', when: 'amount > 2' },
          ],
        },
      ],
    },
    {
      ...{ nativeSymbol: 'ETH', rewardSymbol: 'RWD', wrapped: undefined, feeds: { GEM: feed }, pairs: [] },
      tokens: { GEM: { address: gem, decimals: 0 } },
    },
  );
  assert.deepEqual(compiled.problems, []);
  return compiled.rules;
}

const topicOf = (text: string): Hash => parseEventSignature(text).topic;

const paid = (user: Address, amount: bigint, address = shop) => ({
  address,
  topics: [topicOf(PAID), `0x${encodeWord(user)}` as const],
  data: `0x${encodeWord(amount)}` as const,
});

const awardOf = (parts: Partial<Award>): Award => ({
  ...{
    rule: 'pay',
    version: 1,
    category: 'trading',
    user: alice,
    points: decimal('5'),
    txHash: TX,
    ordinal: 0,
  },
  ...{
    role: 'user',
    block: { number: 50, hash: block.hash },
    awardedAt: block.minedAt,
    inputs: { computed: '5' },
  },
  ...parts,
});

onSampledDatabase(import.meta.url, ({ database }) => {
  const explain = (
    rules: ExplainOptions['rules'],
    logs: ExplainOptions['transaction']['logs'],
    parts: Partial<ExplainOptions> = {},
  ) =>
    explainLogs(database(), {
      ...{ rules, block, earlier: [], awards: [], notStored: undefined },
      transaction: {
        ...{ hash: TX, from: carol, to: shop, value: 0n, succeeded: true, calls: [], logs },
      },
      ...parts,
    });
  /** The verdicts about each log. */
  const verdicts = async (...input: Parameters<typeof explain>) =>
    (await explain(...input)).map((log) => log.verdicts.map(({ rule: id, what }) => `${id}: ${what}`));
  const first = async (...input: Parameters<typeof explain>) => (await explain(...input))[0]?.verdicts[0];

  test('the verdict says whether a rule is not in force yet, has ended, or was replaced by a later version', async () => {
    const rules = compile(
      rule('early', { from: '2025-11-21' }),
      rule('late', { from: 3, to: 50 }),
      rule('pay'),
      rule('pay', { version: 2, from: '2025-11-20' }),
    );
    assert.deepEqual(await verdicts(rules, [paid(alice, 1n)]), [
      ['early: not_yet', 'late: ended', 'pay: replaced', 'pay: not_applied', 'hold: wrong_contract'],
    ]);
    const [log] = await explain(rules, [paid(alice, 1n)]);
    assert.deepEqual(
      log?.verdicts.slice(0, 2).map(({ message }) => message),
      ['not in force before 2025-11-21', 'in force only before block 50'],
    );
  });

  test('the verdict about a log of a failed transaction says that it failed, as no rule reads such a log', async () => {
    const referred = [topicOf(REFERRED), `0x${encodeWord(bob)}` as const, `0x${encodeWord(alice)}` as const];
    const logs = [
      paid(alice, 1n),
      paid(alice, 5n, gem),
      { ...paid(bob, 1n), topics: referred },
      { ...paid(alice, 1n), topics: [hashOf(9)] },
    ];
    const transaction = { hash: TX, from: carol, to: shop, value: 0n, succeeded: false, calls: [], logs };
    const rules = compile(rule('pay'));
    assert.deepEqual(await verdicts(rules, [], { transaction }), [
      ['pay: failed', 'hold: failed'],
      ['pay: failed', 'hold: failed'],
      ['referral: failed'],
      [],
    ]);
  });

  test('the verdict tells a log of another contract from a log that does not match the signature', async () => {
    const rules = compile(rule('pay'));
    const foreign = paid(alice, 1n, elsewhere);
    const unknown = { ...foreign, topics: [hashOf(9)] };
    const plain = { ...paid(alice, 1n), topics: [topicOf(PAID)] };
    assert.deepEqual(await verdicts(rules, [foreign, unknown, plain, { ...unknown, topics: [] }]), [
      ['pay: wrong_contract', 'hold: wrong_contract'],
      [],
      ['pay: undecodable', 'hold: wrong_contract'],
      [],
    ]);
    assert.match((await first(rules, [foreign]))?.message ?? '', new RegExp(`only at ${shop}$`));
  });

  test('the zero address and denied users earn nothing', async () => {
    const rules = compile(rule('pay', { deny: [bob] }));
    const [unset, denied] = await verdicts(rules, [paid(zeroAddress, 1n), paid(bob, 1n)]);
    assert.deepEqual([unset?.[0], denied?.[0]], ['pay: zero_address', 'pay: denied']);
  });

  test('the verdict about a false condition shows the values that the condition read', async () => {
    const verdict = await first(compile(rule('pay', { when: 'amount >= 10' })), [paid(alice, 9n)]);
    assert.equal(verdict?.what, 'condition_false');
    assert.match(verdict?.message ?? '', /"amount >= 10" is false/);
    assert.equal(verdict?.inputs['arg.amount'], '9');
  });

  test('the verdict names a token without a price, even if it got a price later', async () => {
    const rules = compile(
      rule('pay', { when: 'usd(amount, GEM) >= 1' }),
      rule('plain', { points: 'usd(amount, GEM)' }),
    );
    const price = { asset: 'GEM', price: decimal('2'), source: 'test' };
    await insertPrice(database(), { ...price, observedAt: later(50_001) });
    const [log] = await explain(rules, [paid(alice, 9n)]);
    assert.deepEqual(
      log?.verdicts.slice(0, 2).map(({ what }) => what),
      ['no_price', 'no_price'],
    );
    assert.match(log?.verdicts[0]?.message ?? '', /GEM had no price in force at 2025-11-20T12:00:50.000Z/);
    await insertPrice(database(), { ...price, observedAt: block.minedAt });
    const [[pay] = []] = await verdicts(rules, [paid(alice, 9n)]);
    assert.equal(pay, 'pay: not_applied');
  });

  test('the verdict names a token whose price was too old', async () => {
    const rules = compileWith({ maxAgeMs: 5_000 }, [rule('pay', { points: 'usd(amount, GEM)' })]);
    const observedAt = new Date(block.minedAt.getTime() - 5_001);
    await insertPrice(database(), { asset: 'GEM', price: decimal('2'), source: 'test', observedAt });
    assert.equal((await first(rules, [paid(alice, 9n)]))?.what, 'no_price');
  });

  test('the verdict says whether points are not above zero, or too many', async () => {
    const rules = compile(rule('pay', { points: 'amount - 3' }));
    const [zero, many] = await verdicts(rules, [paid(alice, 3n), paid(alice, 2n ** 200n)]);
    assert.deepEqual([zero?.[0], many?.[0]], ['pay: nothing', 'pay: too_many']);
  });

  test('an award is shown with its stored inputs, and a cap is compared with the stored awards', async () => {
    const rules = compile(rule('pay', { caps: { perTx: 5 } }), rule('daily', { caps: { perUserPerDay: 7 } }));
    const awards = [awardOf({})];
    await database().transaction((tx) =>
      insertAwards(tx, [
        ...awards,
        awardOf({ rule: 'daily', points: decimal('7'), txHash: hashOf(1) }),
        awardOf({ rule: 'daily', points: decimal('9'), txHash: hashOf(2), user: bob, role: 'referrer' }),
      ]),
    );
    const logs = [paid(alice, 9n), paid(alice, 1n), paid(bob, 1n)];
    const earlier = [hashOf(1), hashOf(2)];
    assert.deepEqual(
      (await verdicts(rules, logs, { earlier, awards })).map((each) => each.slice(0, 2)),
      [
        ['pay: awarded', 'daily: cap_reached'],
        ['pay: cap_reached', 'daily: cap_reached'],
        ['pay: cap_reached', 'daily: not_applied'],
      ],
    );
    const given = await first(rules, logs, { awards });
    assert.deepEqual([given?.message, given?.inputs], ['5 points', { computed: '5' }]);
  });

  test('awards that come after a log have not used up its caps', async () => {
    const rules = compile(rule('pay', { caps: { perTx: 5 } }), rule('daily', { caps: { perUserPerDay: 7 } }));
    const awards = [awardOf({ ordinal: 1 }), awardOf({ ordinal: 1, rule: 'daily', points: decimal('3') })];
    const daily = (number: number, points: string, from: number) =>
      awardOf({
        ...{ rule: 'daily', points: decimal(points), txHash: hashOf(number) },
        block: { number: from, hash: headerOf(from).hash },
      });
    // Blocks 49 and 51, and transactions 2 before and 3 after it in its block.
    await database().transaction((tx) =>
      insertAwards(tx, [
        ...awards,
        daily(1, '1', 49),
        daily(2, '3', 50),
        daily(3, '9', 50),
        daily(4, '9', 51),
      ]),
    );
    const logs = [paid(alice, 9n), paid(alice, 1n), paid(alice, 1n)];
    assert.deepEqual(
      (await verdicts(rules, logs, { earlier: [hashOf(2)], awards })).map((each) => each.slice(0, 2)),
      [
        ['pay: not_applied', 'daily: not_applied'],
        ['pay: awarded', 'daily: awarded'],
        ['pay: cap_reached', 'daily: cap_reached'],
      ],
    );
  });

  test('logs of a block that is not stored have no awards yet', async () => {
    const rules = compile(rule('pay'));
    const verdict = await first(rules, [paid(alice, 1n)], { notStored: 'its block is not stored yet' });
    assert.deepEqual([verdict?.what, verdict?.message], ['not_stored', 'its block is not stored yet']);
  });

  test('movements of balances and referrals count, and the message says what they change', async () => {
    const rules = compile();
    const referred = {
      ...{ address: shop, data: '0x' as const },
      topics: [topicOf(REFERRED), `0x${encodeWord(alice)}` as const, `0x${encodeWord(bob)}` as const],
    };
    const logs = [paid(alice, 3n, gem), paid(alice, 2n, gem), paid(zeroAddress, 3n, gem), referred];
    assert.deepEqual(await verdicts(rules, logs), [
      ['hold: counts'],
      ['hold: condition_false'],
      ['hold: zero_address'],
      ['referral: counts'],
    ]);
    assert.match((await first(rules, logs))?.message ?? '', /changes by 3;/);
  });
});
