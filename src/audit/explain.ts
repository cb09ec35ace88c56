/**
 * Explains why each log of a transaction earned points or not: gives a verdict for each rule that listens to its event, by the
 * current configuration and the stored awards.
 */
import type { Bundle } from '../chain/blocks/bundle.ts';
import { type Decimal, decimal, decimalText } from '../core/decimal.ts';
import { compare, type Fraction, floorTo, fractionFrom } from '../core/fraction.ts';
import type { Address, Hash } from '../core/hex.ts';
import type { Award } from '../domain/award.ts';
import type { BlockHeader } from '../domain/block.ts';
import { decodeEvent } from '../domain/event-signature.ts';
import type { Activity } from '../domain/points/activity.ts';
import type { EventListener, EventRule, Listener, Movement, Rules } from '../domain/points/rules.ts';
import { dayOf, dayText, edgeText, startOf } from '../domain/points/window.ts';
import { changeOf } from '../ingest/points/accruals.ts';
import {
  fedPricesOf,
  type Inputs,
  POINTS_DIGITS,
  type PriceAt,
  textOf,
  userOf,
} from '../ingest/points/environment.ts';
import { judgeEvent, type PendingAward, type Refusal } from '../ingest/points/pending-awards.ts';
import { usableAt } from '../ingest/points/points.ts';
import type { Db } from '../store/db/db.ts';
import { sumUserDaysBefore } from '../store/points/awards.ts';
import { findPrice, type Price } from '../store/prices/prices.ts';

/** What one rule did with one log. */
export type RuleVerdict = {
  /** Its id; `referral` for the rule that links users to referrers. */
  rule: string;
  version: number | undefined;
  what:
    | 'awarded'
    /** It moves an accruing balance, or links a user to a referrer. */
    | 'counts'
    /** The transaction failed. On some chains it has logs all the same, such as one of its fee. */
    | 'failed'
    | Refusal['reason']
    /** A price was missing, so the token counted as worth 0. */
    | 'no_price'
    | 'cap_reached'
    | 'wrong_contract'
    | 'undecodable'
    /** The block was stored without the award: the rule was not configured then, or was different. */
    | 'not_applied'
    | 'not_stored';
  message: string;
  inputs: Inputs;
};

export type ExplainedLog = {
  /** Its index within the receipt. */
  ordinal: number;
  contract: Address;
  /** Undefined for an anonymous event. */
  topic: Hash | undefined;
  /** Empty if no rule listens to this event. */
  verdicts: RuleVerdict[];
};

export type ExplainOptions = {
  rules: Rules;
  transaction: Bundle['transactions'][number];
  block: BlockHeader;
  /** The transactions before it in its block. */
  earlier: readonly Hash[];
  /** The stored awards of the transaction. */
  awards: readonly Award[];
  /** Why the block is not stored yet; undefined if it is stored. */
  notStored: string | undefined;
};

/** Explains the logs of the transaction in their order. */
export async function explainLogs(db: Db, options: ExplainOptions): Promise<ExplainedLog[]> {
  const { rules, transaction, block } = options;
  const explained: ExplainedLog[] = [];
  for (const [ordinal, log] of transaction.logs.entries()) {
    const { address: contract, topics } = log;
    const [topic] = topics;
    const verdicts: RuleVerdict[] = [];
    for (const listener of rules.listeners.filter(({ signature }) => signature.topic === topic)) {
      const place = {
        txHash: transaction.hash,
        sender: transaction.from,
        contract,
        ordinal,
        logIndex: ordinal,
      };
      const values = listener.tokens.has(contract) ? decodeEvent(listener.signature, log) : undefined;
      if (!transaction.succeeded) verdicts.push(failed(listener));
      else if (!listener.tokens.has(contract)) verdicts.push(wrongContract(listener));
      else if (values === undefined) verdicts.push(undecodable(listener));
      else verdicts.push(await judge(db, { listener, ...place, values }, { ...options, block }));
    }
    explained.push({ ordinal, contract, topic, verdicts });
  }
  return explained;
}

async function judge(db: Db, activity: Activity, options: ExplainOptions): Promise<RuleVerdict> {
  const { listener } = activity;
  switch (listener.kind) {
    case 'event':
      return judgeRule(db, { ...activity, listener }, options);
    case 'movement':
      return judgeMovement(db, { ...activity, listener }, options);
    case 'referral': {
      const [user, referrer] = [activity.values[listener.user], activity.values[listener.referrer]];
      const message = `${user} is referred by ${referrer}, unless that is the zero address or the user, or the user had a referrer before`;
      return { ...nameOf(listener), what: 'counts', message, inputs: {} };
    }
  }
}

async function judgeRule(
  db: Db,
  activity: Activity<EventListener>,
  { block, earlier, awards, notStored }: ExplainOptions,
): Promise<RuleVerdict> {
  const { listener, ordinal } = activity;
  const { rule } = listener;
  const name = nameOf(listener);
  const given = awards.find(
    (one) =>
      one.rule === rule.id && one.version === rule.version && one.ordinal === ordinal && one.role === 'user',
  );
  if (given !== undefined)
    return { ...name, what: 'awarded', message: `${decimalText(given.points)} points`, inputs: given.inputs };
  const judged = judgeEvent(activity, { block, priceAt: await pricesOf(db, activity, block) });
  if ('reason' in judged) return { ...name, ...explainRefusal(rule, judged, block), inputs: judged.inputs };
  const { inputs } = judged;
  if (notStored !== undefined) return { ...name, what: 'not_stored', message: notStored, inputs };
  const cap = await findFullCap(db, judged, { earlier, awards });
  if (cap !== undefined) return { ...name, what: 'cap_reached', message: cap, inputs };
  if (floorTo(judged.points, POINTS_DIGITS).lte(0))
    return {
      ...name,
      what: 'nothing',
      message: `it earns less than the smallest amount with ${POINTS_DIGITS} decimals`,
      inputs,
    };
  const message = `it would earn ${textOf(judged.points)} points now, but when its block was stored, the rule was missing or different`;
  return { ...name, what: 'not_applied', message, inputs };
}

async function judgeMovement(
  db: Db,
  activity: Activity<Movement>,
  { block }: ExplainOptions,
): Promise<RuleVerdict> {
  const { listener } = activity;
  const name = nameOf(listener);
  const user = userOf(listener.user, activity);
  const inputs: Inputs = {};
  if (user === undefined)
    return { ...name, what: 'zero_address', message: 'the zero address has no balance', inputs };
  const change = changeOf(activity, { block, priceAt: await pricesOf(db, activity, block), inputs });
  if (change === 'condition_false')
    return { ...name, what: change, message: conditionOf(listener.when?.text), inputs };
  if (change === 'too_many')
    return {
      ...name,
      what: change,
      message: 'the change has more than 98 digits, so it does not count',
      inputs,
    };
  if (change === 0n)
    return {
      ...name,
      what: 'nothing',
      message: `the balance of ${user} changes by 0, so this log does not count`,
      inputs,
    };
  const message = `the balance of ${user} changes by ${change}; its points are awarded when the day has ended`;
  return { ...name, what: 'counts', message, inputs };
}

/** The prices at the block's time that the listener's expressions may use. */
async function pricesOf(
  db: Db,
  { listener, contract }: Activity,
  { minedAt }: BlockHeader,
): Promise<PriceAt> {
  const expressions =
    listener.kind === 'event'
      ? [listener.rule.when, listener.rule.points]
      : listener.kind === 'movement'
        ? [listener.when, listener.change]
        : [];
  const prices = new Map<string, Price>();
  for (const fed of fedPricesOf(expressions, listener.tokens.get(contract) ?? new Map())) {
    const price = usableAt(fed, await findPrice(db, fed.asset, minedAt), minedAt);
    if (price !== undefined) prices.set(fed.asset, price);
  }
  return (asset) => prices.get(asset);
}

function explainRefusal(
  rule: EventRule,
  { reason, inputs }: Refusal,
  { minedAt }: BlockHeader,
): Pick<RuleVerdict, 'what' | 'message'> {
  const unpriced = Object.keys(inputs).filter((key) => key.startsWith('price.') && inputs[key] === 'none');
  const { from, to } = rule.window;
  switch (reason) {
    case 'not_yet':
      return { what: reason, message: `not in force before ${from && edgeText(from)}` };
    case 'ended':
      return { what: reason, message: `in force only before ${to && edgeText(to)}` };
    case 'replaced':
      return { what: reason, message: 'a later version has replaced it' };
    case 'zero_address':
      return { what: reason, message: 'its user is the zero address' };
    case 'denied':
      return { what: reason, message: 'its user is denied by the rule' };
    case 'too_many':
      return { what: reason, message: 'more than 10^48 points are not awarded' };
    case 'condition_false':
    case 'nothing': {
      const message =
        reason === 'nothing'
          ? `"${rule.points.text}" is not above zero, or divides by zero`
          : conditionOf(rule.when?.text);
      if (unpriced.length === 0) return { what: reason, message };
      const tokens = unpriced.map((key) => key.slice('price.'.length)).join(', ');
      return {
        what: 'no_price',
        message: `${message}; ${tokens} had no price in force at ${minedAt.toISOString()}, so it counted as worth 0`,
      };
    }
  }
}

const conditionOf = (when = '') => `its condition "${when}" is false, or divides by zero`;

/** The cap that leaves nothing for the pending award, by the stored awards that come before it. */
async function findFullCap(
  db: Db,
  { rule, user, ordinal, block, earnedAt }: PendingAward,
  { earlier, awards }: Pick<ExplainOptions, 'earlier' | 'awards'>,
): Promise<string | undefined> {
  const { id, version, perTx, perUserPerDay } = rule;
  const isFull = (used: Decimal, cap: Fraction) => compare(fractionFrom(used), cap) >= 0;
  const sum = (of: readonly Award[]) => of.reduce((total, { points }) => total.plus(points), decimal('0'));
  const inTransaction = awards.filter(
    (one) => one.rule === id && one.version === version && one.role === 'user' && one.ordinal < ordinal,
  );
  if (perTx !== undefined && isFull(sum(inTransaction), perTx))
    return `the cap perTx of ${textOf(perTx)} points is reached in this transaction`;
  if (perUserPerDay === undefined) return undefined;
  const day = dayOf(earnedAt);
  const question = { rule: id, version, user, day: startOf(day) };
  const before = await sumUserDaysBefore(db, [question], block.number, earlier);
  const onDay = sum(inTransaction.filter((one) => one.user === user)).plus(before[0] ?? decimal('0'));
  return isFull(onDay, perUserPerDay)
    ? `the cap perUserPerDay of ${textOf(perUserPerDay)} points is reached by ${user} on ${dayText(day)}`
    : undefined;
}

/** Messages list this many contracts at most. */
const CONTRACTS_SHOWN_MAX = 5;

function wrongContract(listener: Listener): RuleVerdict {
  const contracts = [...listener.tokens.keys()];
  const shown = contracts.slice(0, CONTRACTS_SHOWN_MAX).join(', ');
  const more = contracts.length - CONTRACTS_SHOWN_MAX;
  const message = `it listens to this event only at ${shown}${more > 0 ? ` and ${more} others` : ''}`;
  return { ...nameOf(listener), what: 'wrong_contract', message, inputs: {} };
}

function failed(listener: Listener): RuleVerdict {
  const message = 'the transaction failed, so its logs do not count';
  return { ...nameOf(listener), what: 'failed', message, inputs: {} };
}

function undecodable(listener: Listener): RuleVerdict {
  const message = `the log does not match ${listener.signature.canonical} as the rule declares it: check which parameters are "indexed"`;
  return { ...nameOf(listener), what: 'undecodable', message, inputs: {} };
}

function nameOf(listener: Listener): Pick<RuleVerdict, 'rule' | 'version'> {
  switch (listener.kind) {
    case 'event':
      return { rule: listener.rule.id, version: listener.rule.version };
    case 'movement':
      return { rule: listener.rule, version: undefined };
    case 'referral':
      return { rule: 'referral', version: undefined };
  }
}
