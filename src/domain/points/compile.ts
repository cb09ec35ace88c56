/**
 * Compiles the point rules of the configuration, and reports every problem in them.
 */
import { type Fraction, fractionFrom, zero } from '../../core/fraction.ts';
import { IMPORT_RULE } from '../award-line.ts';
import type { Scope } from '../expression/check.ts';
import type {
  AccrualRule,
  CommonRule,
  EventListener,
  Movement,
  Multiplier,
  ReferralListener,
  Rules,
} from './rules.ts';
import {
  type Compiling,
  checkForms,
  compileExpression,
  compileSource,
  compileUser,
  type Path,
  type RuleProblem,
  scopeOf,
  type TextAt,
} from './source.ts';
import type {
  AccrualRuleText,
  EventRuleText,
  MovementText,
  MultiplierText,
  PointsText,
  Surroundings,
  WindowText,
} from './text.ts';
import { findContract, tokensBySymbol, tokensOf } from './tokens.ts';
import { edgeOf, type Window } from './window.ts';

/** EIP-20. */
const TRANSFER = 'Transfer(address indexed from, address indexed to, uint256 value)';
/** The only name in expressions of accrual rules: the sum of the balances at each second of a day. */
const BALANCE_SECONDS = 'balanceSeconds';

/**
 * Compiles all rules. The result leaves out rules with problems. Entries with the same id are versions of one rule. The caller
 * has checked all days with `parseDay` (window.ts).
 */
export function compileRules(
  points: PointsText,
  surroundings: Surroundings,
): { rules: Rules; problems: readonly RuleProblem[] } {
  const compiling: Compiling = {
    surroundings,
    symbols: tokensBySymbol(surroundings),
    problems: checkVersions(points),
  };
  const accruals = new Map<string, AccrualRule[]>();
  const events: EventListener[] = [];
  const movements: Movement[] = [];
  points.rules.forEach((text, index) => {
    const path = ['rules', index];
    const common = compileCommon(compiling, points, { text, path });
    if (text.type === 'event') {
      events.push(...compileEvent(compiling, common, { text, path }));
      return;
    }
    const versions = accruals.get(text.id);
    const own = compileMovements(compiling, { text, path });
    // All versions use the same balance, so only the movements of the first one are needed.
    if (versions === undefined) movements.push(...own);
    accruals.set(text.id, [...(versions ?? []), ...compileAccrual(compiling, common, { text, path })]);
  });
  const { referral } = points;
  const listeners = [...compileReferral(compiling, points), ...events, ...movements];
  return { rules: { listeners, accruals, referral }, problems: compiling.problems };
}

/** The fields that both kinds of rules have, without the expressions. */
type Common = Omit<CommonRule, 'when' | 'points'>;

function compileCommon(
  { problems }: Compiling,
  { seasons, referral, rules }: PointsText,
  { text, path }: TextAt<EventRuleText | AccrualRuleText>,
): Common {
  const { id, version, category, deny = [], caps = {}, multipliers = [] } = text;
  if (id === IMPORT_RULE)
    problems.push({
      path: [...path, 'id'],
      message: `cannot be ${IMPORT_RULE}: imported awards have this id, and awards of both would count as the same`,
    });
  const needsReferral = text.referralShare !== undefined && referral === undefined;
  if (needsReferral)
    problems.push({
      path: [...path, 'referralShare'],
      message: 'needs points.referral, which defines the referrals',
    });
  return {
    id,
    version,
    category,
    deny: new Set(deny),
    window: compileWindow(problems, { text, path }),
    successors: rules
      .filter((other) => other.id === id && other.version > version)
      .map(({ from }) => edgeOf(from)),
    multipliers: multipliers.flatMap((multiplier, index) =>
      compileMultiplier(problems, seasons, { text: multiplier, path: [...path, 'multipliers', index] }),
    ),
    perUserPerDay: limitOf(caps.perUserPerDay),
    referralShare: limitOf(text.referralShare ?? referral?.share) ?? zero,
  };
}

function compileMultiplier(
  problems: RuleProblem[],
  seasons: PointsText['seasons'],
  { text, path }: TextAt<MultiplierText>,
): Multiplier[] {
  const { season, from = '', to = '', x } = text;
  const factor = fractionFrom(String(x));
  if (season === undefined)
    return [{ name: `${from}..${to}`, window: compileWindow(problems, { text, path }), factor }];
  const named = Object.hasOwn(seasons, season) ? seasons[season] : undefined;
  if (named === undefined)
    problems.push({ path: [...path, 'season'], message: `no season is named ${season}` });
  if (from !== '' || to !== '')
    problems.push({ path: [...path, 'season'], message: 'must not be combined with from or to' });
  return named === undefined
    ? []
    : [{ name: season, window: compileWindow([], { text: named, path }), factor }];
}

function compileWindow(problems: RuleProblem[], { text: { from, to }, path }: TextAt<WindowText>): Window {
  if (from !== undefined && to !== undefined && typeof from === typeof to && from >= to)
    problems.push({
      path: [...path, 'to'],
      message: `must be after ${from}: the rule ends before this day or block`,
    });
  return { from: edgeOf(from), to: edgeOf(to) };
}

function compileEvent(
  compiling: Compiling,
  common: Common,
  { text, path }: TextAt<EventRuleText>,
): EventListener[] {
  const source = compileSource(compiling, { text: text.source, path: [...path, 'source'] });
  if (source === undefined) {
    checkForms(compiling, [
      { text: text.when, path: [...path, 'when'] },
      { text: text.points, path: [...path, 'points'] },
    ]);
    return [];
  }
  const user = compileUser(compiling, source.signature, { text: text.user, path: [...path, 'user'] });
  const expressions = compileBoth(compiling, scopeOf(compiling, source), { text, path });
  if (user === undefined || expressions === undefined) return [];
  const perTx = limitOf(text.caps?.perTx);
  return [{ kind: 'event', ...source, rule: { ...common, ...expressions, user, perTx } }];
}

function compileAccrual(
  compiling: Compiling,
  common: Common,
  { text, path }: TextAt<AccrualRuleText>,
): AccrualRule[] {
  const { problems, surroundings, symbols } = compiling;
  for (const key of ['from', 'to'] as const) {
    if (typeof text[key] === 'number')
      problems.push({
        path: [...path, key],
        message: 'must be a day, because accrual rules count whole days',
      });
  }
  const contract = text.token === undefined ? undefined : findContract(surroundings, text.token);
  const own =
    contract !== undefined && 'address' in contract ? tokensOf(surroundings, contract.address) : undefined;
  const tokens = new Map([...symbols, ...(own ?? [])]);
  const scope: Scope = {
    what: 'not a name that rules of type accrual can use',
    names: new Map([[BALANCE_SECONDS, 'integer']]),
    tokens: new Map(
      Array.from(tokens, ([name, { price }]) => [name, price === undefined ? 'unpriced' : 'priced']),
    ),
  };
  const expressions = compileBoth(compiling, scope, { text, path });
  return expressions === undefined ? [] : [{ ...common, ...expressions, tokens }];
}

/** Undefined if the condition or the points have a problem. The condition is optional. */
function compileBoth(
  compiling: Compiling,
  scope: Scope,
  { text, path }: TextAt<{ when?: string; points: string }>,
): Pick<CommonRule, 'when' | 'points'> | undefined {
  const when = compileExpression(compiling, scope, {
    text: text.when,
    path: [...path, 'when'],
    type: 'boolean',
  });
  const points = compileExpression(compiling, scope, {
    text: text.points,
    path: [...path, 'points'],
    type: 'number',
  });
  if (points === undefined || (text.when !== undefined && when === undefined)) return undefined;
  return { when, points };
}

function compileMovements(compiling: Compiling, { text, path }: TextAt<AccrualRuleText>): Movement[] {
  const { token, movements } = text;
  if ((token === undefined) === (movements === undefined)) {
    compiling.problems.push({ path, message: 'needs either token or movements' });
    return [];
  }
  if (movements !== undefined)
    return movements.flatMap((movement, index) =>
      compileMovement(compiling, text.id, index, { text: movement, path: [...path, 'movements', index] }),
    );
  const contract = findContract(compiling.surroundings, token ?? '');
  if ('message' in contract) {
    compiling.problems.push({ path: [...path, 'token'], message: contract.message });
    return [];
  }
  // A token's balance is the sum of incoming transfers minus the sum of outgoing ones.
  const transfer = { event: TRANSFER, contracts: [contract.address] };
  return [
    { ...transfer, user: 'arg:from', change: '-value' },
    { ...transfer, user: 'arg:to', change: 'value' },
  ].flatMap((movement, index) => compileMovement(compiling, text.id, index, { text: movement, path }));
}

function compileMovement(
  compiling: Compiling,
  rule: string,
  index: number,
  { text, path }: TextAt<MovementText>,
): Movement[] {
  const source = compileSource(compiling, { text, path });
  if (source === undefined) {
    checkForms(compiling, [
      { text: text.change, path: [...path, 'change'] },
      { text: text.when, path: [...path, 'when'] },
    ]);
    return [];
  }
  const scope = scopeOf(compiling, source);
  const user = compileUser(compiling, source.signature, { text: text.user, path: [...path, 'user'] });
  const change = compileExpression(compiling, scope, {
    text: text.change,
    path: [...path, 'change'],
    type: 'integer',
  });
  const when = compileExpression(compiling, scope, {
    text: text.when,
    path: [...path, 'when'],
    type: 'boolean',
  });
  return user === undefined || change === undefined
    ? []
    : [{ kind: 'movement', ...source, rule, index, user, change, when }];
}

function compileReferral(compiling: Compiling, { referral }: PointsText): ReferralListener[] {
  if (referral === undefined) return [];
  const source = compileSource(compiling, { text: referral.source, path: ['referral', 'source'] });
  if (source === undefined) return [];
  const indexOf = (key: 'user' | 'referrer') => {
    const found = compileUser(compiling, source.signature, { text: referral[key], path: ['referral', key] });
    return found?.kind === 'argument' ? found.index : undefined;
  };
  const [user, referrer] = [indexOf('user'), indexOf('referrer')];
  return user === undefined || referrer === undefined
    ? []
    : [{ kind: 'referral', ...source, user, referrer }];
}

/** A later version replaces the earlier one at its `from`. Both must use the same balance. */
function checkVersions({ rules }: PointsText): RuleProblem[] {
  return rules.flatMap((rule, index): RuleProblem[] => {
    const at = (...keys: Path): Path => ['rules', index, ...keys];
    const before = rules.slice(0, index).findLast(({ id }) => id === rule.id);
    if (before === undefined) return [];
    if (rule.version <= before.version)
      return [
        {
          path: at('version'),
          message: `must be more than ${before.version}, the version of ${rule.id} before it`,
        },
      ];
    if (rule.type !== before.type)
      return [{ path: at('type'), message: `must be ${before.type}, as in the version before it` }];
    if (rule.from === undefined)
      return [
        {
          path: at('version'),
          message: `needs "from": when it takes the place of version ${before.version}`,
        },
      ];
    if (rule.type === 'accrual' && before.type === 'accrual' && balanceOf(rule) !== balanceOf(before))
      return [
        {
          path: at('version'),
          message: 'counts another balance than the version before it: give it a different id',
        },
      ];
    return [];
  });
}

const balanceOf = ({ token, movements }: AccrualRuleText): string => JSON.stringify([token, movements]);

function limitOf(number: number | undefined): Fraction | undefined {
  return number === undefined ? undefined : fractionFrom(String(number));
}
