/**
 * Compiles the point rules of a configuration, and reports each problem at its character.
 */
import Type, { type StaticDecode } from 'typebox';
import { Check, Decode } from 'typebox/value';
import { compileRules } from '../domain/points/compile.ts';
import type { Rules } from '../domain/points/rules.ts';
import type { Surroundings } from '../domain/points/text.ts';
import { childPointer, findAt } from './pointer.ts';
import { Points, PointsRule } from './points-schema.ts';
import type { PointerProblem } from './problem.ts';
import { type Config, Native, Pair, Reward, Token } from './schema.ts';

const Named = Type.Object({
  chain: Type.Object({ native: Native, reward: Reward }),
  tokens: Type.Record(Type.String(), Token),
  pairs: Type.Array(Pair),
  prices: Type.Object({
    native: Type.Optional(Type.Unknown()),
    tokens: Type.Record(Type.String(), Type.Unknown()),
  }),
});

/** Keys of rules that refer to seasons or to the referral. */
const NAMING = new Set<string | number | undefined>(['season', 'referralShare']);

/** The compiled rules of a valid configuration. */
export function rulesOf({ points, ...named }: Config): Rules {
  return compileRules(points, surroundingsOf(named)).rules;
}

/** Reports problems of well-formed rules. Reports none while pairs, tokens or prices that they may name are malformed. */
export function checkPoints(values: unknown): PointerProblem[] {
  const rules = findAt(values, '/points/rules');
  if (!Array.isArray(rules) || !Check(Named, values)) return [];
  const indexes = [...rules.keys()].filter((index) => Check(PointsRule, rules[index]));
  const wellFormed = indexes.map((index): unknown => rules[index]);
  const whole = { ...Object(findAt(values, '/points')), rules: wellFormed };
  const isWhole = Check(Points, whole);
  // If seasons or referral are malformed, compile without them and drop problems about references to them below.
  const points = isWhole ? whole : { seasons: {}, rules: wellFormed };
  if (!Check(Points, points)) return [];
  const { problems } = compileRules(Decode(Points, points), surroundingsOf(Decode(Named, values)));
  const reported = problems.filter(({ path }) => isWhole || !NAMING.has(path.at(-1)));
  return reported.map(({ path, message, span }) => {
    const [first, index, ...others] = path;
    const place =
      first === 'rules' && typeof index === 'number' ? ['rules', indexes[index] ?? 0, ...others] : path;
    const pointer = place.reduce<string>(childPointer, '/points');
    return span === undefined ? { pointer, message } : { pointer, message, span };
  });
}

function surroundingsOf({ chain, tokens, pairs, prices }: StaticDecode<typeof Named>): Surroundings {
  const { native, reward } = chain;
  const fed = Object.entries(prices.tokens);
  if (prices.native !== undefined) fed.push([native.symbol, prices.native]);
  const feeds = Object.fromEntries(fed.map(([symbol, feed]) => [symbol, ageOf(feed)]));
  const wrapped = native.wrapped ?? pairs[0]?.token1;
  return { nativeSymbol: native.symbol, rewardSymbol: reward.symbol, wrapped, feeds, tokens, pairs };
}

function ageOf(feed: unknown): { maxAgeMs?: number } {
  const seconds = findAt(feed, '/maxAgeSeconds');
  return typeof seconds === 'number' ? { maxAgeMs: seconds * 1000 } : {};
}
