/**
 * The rules of points, compiled to see what is wrong with them, each problem at its character.
 */
import Type, { type StaticDecode } from 'typebox';
import { Check, Decode } from 'typebox/value';
import { compileRules } from '../core/points/compile.ts';
import type { Rules } from '../core/points/rules.ts';
import type { Surroundings } from '../core/points/text.ts';
import type { Finding } from './finding.ts';
import { childPointer, findAt } from './pointer.ts';
import { Points, PointsRule } from './points-schema.ts';
import { type Config, Native, Pair, Reward, Token } from './schema.ts';

const Named = Type.Object({
  chain: Type.Object({ native: Native, reward: Reward }),
  tokens: Type.Record(Type.String(), Token),
  pairs: Type.Array(Pair),
});

/** The rules of a configuration, which have no problems. */
export function rulesOf({
  chain,
  tokens,
  pairs,
  points,
}: Pick<Config, 'chain' | 'tokens' | 'pairs' | 'points'>): Rules {
  return compileRules(points, surroundingsOf({ chain, tokens, pairs })).rules;
}

/** What is wrong with the rules that are well formed; nothing while what they may name is not. */
export function checkPoints(values: unknown): Finding[] {
  const rules = findAt(values, '/points/rules');
  if (!Array.isArray(rules) || !Check(Named, values)) return [];
  const indexes = [...rules.keys()].filter((index) => Check(PointsRule, rules[index]));
  const wellFormed = indexes.map((index): unknown => rules[index]);
  const points = { ...Object(findAt(values, '/points')), rules: wellFormed };
  if (!Check(Points, points)) return [];
  const { problems } = compileRules(Decode(Points, points), surroundingsOf(Decode(Named, values)));
  return problems.map(({ path, message, span }) => {
    const [first, index, ...others] = path;
    const place =
      first === 'rules' && typeof index === 'number' ? ['rules', indexes[index] ?? 0, ...others] : path;
    const pointer = place.reduce<string>(childPointer, '/points');
    return span === undefined ? { pointer, message } : { pointer, message, span };
  });
}

function surroundingsOf({ chain, tokens, pairs }: StaticDecode<typeof Named>): Surroundings {
  return { nativeSymbol: chain.native.symbol, rewardSymbol: chain.reward.symbol, tokens, pairs };
}
