/**
 * The rules of points, compiled to see what is wrong with them, each problem at its character.
 */
import Type, { type StaticDecode } from 'typebox';
import { Check, Decode } from 'typebox/value';
import { compileRules } from '../domain/points/compile.ts';
import type { Rules } from '../domain/points/rules.ts';
import type { Surroundings } from '../domain/points/text.ts';
import type { Finding } from './finding.ts';
import { childPointer, findAt } from './pointer.ts';
import { Points, PointsRule } from './points-schema.ts';
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

/** Keys of rules that are about seasons or the referral. */
const NAMING = new Set<string | number | undefined>(['season', 'referralShare']);

/** The rules of a configuration, which have no problems. */
export function rulesOf({ points, ...named }: Config): Rules {
  return compileRules(points, surroundingsOf(named)).rules;
}

/** What is wrong with the rules that are well formed; nothing while what they may name is not. */
export function checkPoints(values: unknown): Finding[] {
  const rules = findAt(values, '/points/rules');
  if (!Array.isArray(rules) || !Check(Named, values)) return [];
  const indexes = [...rules.keys()].filter((index) => Check(PointsRule, rules[index]));
  const wellFormed = indexes.map((index): unknown => rules[index]);
  const whole = { ...Object(findAt(values, '/points')), rules: wellFormed };
  const isWhole = Check(Points, whole);
  // Without seasons and referral, of which one is wrong, nothing can be said of what names them.
  const points = isWhole ? whole : { seasons: {}, rules: wellFormed };
  if (!Check(Points, points)) return [];
  const { problems } = compileRules(Decode(Points, points), surroundingsOf(Decode(Named, values)));
  const told = problems.filter(({ path }) => isWhole || !NAMING.has(path.at(-1)));
  return told.map(({ path, message, span }) => {
    const [first, index, ...others] = path;
    const place =
      first === 'rules' && typeof index === 'number' ? ['rules', indexes[index] ?? 0, ...others] : path;
    const pointer = place.reduce<string>(childPointer, '/points');
    return span === undefined ? { pointer, message } : { pointer, message, span };
  });
}

function surroundingsOf({ chain, tokens, pairs, prices }: StaticDecode<typeof Named>): Surroundings {
  const { native, reward } = chain;
  const feeds = [...(prices.native === undefined ? [] : [native.symbol]), ...Object.keys(prices.tokens)];
  const wrapped = native.wrapped ?? pairs[0]?.token1;
  return { nativeSymbol: native.symbol, rewardSymbol: reward.symbol, wrapped, feeds, tokens, pairs };
}
