/**
 * Applies the points rules to new blocks in the blocks' transaction, and removes the results when the blocks are orphaned.
 */
import { type Address, zeroAddress } from '../../core/hex.ts';
import type { Log } from '../../core/log.ts';
import type { CheckedExpression } from '../../domain/expression/check.ts';
import { isCounted } from '../../domain/pair.ts';
import type { BlockActivity } from '../../domain/points/activity.ts';
import { ofKind } from '../../domain/points/activity.ts';
import type {
  EventListener,
  Listener,
  Movement,
  ReferralListener,
  Rules,
} from '../../domain/points/rules.ts';
import type { FedPrice } from '../../domain/points/tokens.ts';
import { dayOf, startOf } from '../../domain/points/window.ts';
import type { Db, Tx } from '../../store/db/db.ts';
import { revertAccruals } from '../../store/points/accruals.ts';
import { deleteAwardsAbove, insertAwards, sumUserDays } from '../../store/points/awards.ts';
import {
  deleteReferralsAbove,
  findReferrers,
  insertReferrals,
  type Referral,
} from '../../store/points/referrals.ts';
import { listPrices, type Price } from '../../store/prices/prices.ts';
import type { BlockProcessor } from '../block-processor.ts';
import { type Closed, closeDays, moveBalances } from './accruals.ts';
import { capAwards, dayKey } from './cap-awards.ts';
import { fedPricesOf, type PriceAt } from './environment.ts';
import { awardDay, awardEvent, lastMomentOf, type PendingAward } from './pending-awards.ts';

/** A block processor that writes referrals, awards and balances in the order of the chain. */
export function createPointsProcessor({ rules, log }: { rules: Rules; log: Log }): BlockProcessor {
  const accrualIds = [...rules.accruals.keys()];

  async function write(tx: Tx, blocks: Parameters<BlockProcessor['write']>[1]): Promise<void> {
    const placed = blocks.flatMap(({ header, activities }) =>
      activities.map((activity): BlockActivity => ({ activity, block: header })),
    );
    await writeReferrals(tx, rules, ofKind(placed, 'referral'));
    const closed = [
      ...(await writeMovements(tx, ofKind(placed, 'movement'))),
      ...(await closeDays(tx, accrualIds, blocks)),
    ];
    const pendingAwards = [
      ...(await awardEvents(tx, ofKind(placed, 'event'), log)),
      ...(await awardDays(tx, rules, closed)),
    ];
    if (pendingAwards.length === 0) return;
    const [earnedBefore, referrers] = [
      await loadEarned(tx, pendingAwards),
      await loadReferrers(tx, rules, pendingAwards),
    ];
    const awards = capAwards(pendingAwards, { earnedBefore, referrers });
    const count = await insertAwards(tx, awards);
    log.debug({ pendingAwards: pendingAwards.length, awards: count }, 'points.awarded');
  }

  async function writeMovements(tx: Tx, movements: readonly BlockActivity<Movement>[]): Promise<Closed[]> {
    const needs = movements.flatMap((placed) => needsOf(placed, ({ when, change }) => [when, change]));
    return moveBalances(tx, movements, await loadPrices(tx, needs, log));
  }

  async function awardDays(tx: Tx, { accruals }: Rules, closed: readonly Closed[]): Promise<PendingAward[]> {
    const due = closed.flatMap(({ day, block }) =>
      (accruals.get(day.rule) ?? []).map((rule) => ({ rule, day, block })),
    );
    const needs = due.flatMap(({ rule, day }): Need[] =>
      fedPricesOf([rule.when, rule.points], rule.tokens).map((fed) => ({
        ...fed,
        at: lastMomentOf(day.day),
      })),
    );
    const priceAt = await loadPrices(tx, needs, log);
    return due.flatMap(({ rule, day, block }) => awardDay(rule, day, { block, priceAt }) ?? []);
  }

  return {
    write,
    async undo(tx, ancestorNumber) {
      await deleteAwardsAbove(tx, ancestorNumber);
      await revertAccruals(tx, ancestorNumber);
      await deleteReferralsAbove(tx, ancestorNumber);
    },
  };
}

/** The pending awards of these events. Logs assets that have no price in force. */
export async function awardEvents(
  db: Db,
  events: readonly BlockActivity<EventListener>[],
  log: Log,
): Promise<PendingAward[]> {
  const needs = events.flatMap((placed) => needsOf(placed, ({ rule }) => [rule.when, rule.points]));
  const priceAt = await loadPrices(db, needs, log);
  return events.flatMap(({ activity, block }) => awardEvent(activity, { block, priceAt }) ?? []);
}

/**
 * Prices in force, unless they are too old at that time. Logs assets without a price, because they count as worth nothing.
 */
async function loadPrices(db: Db, needs: readonly Need[], log: Log): Promise<PriceAt> {
  const byAsset = new Map<string, Map<number, Price>>();
  for (const fed of new Map(needs.map((need) => [need.asset, need])).values()) {
    const { asset } = fed;
    const ats = needs.flatMap((need) => (need.asset === asset ? [need.at.getTime()] : []));
    const times = [...new Set(ats)].map((ms) => new Date(ms));
    const found = await listPrices(db, asset, times);
    const prices = times.map((at, index) => usableAt(fed, found[index], at));
    const missing = times.find((_, index) => prices[index] === undefined);
    if (missing !== undefined) log.warn({ asset, at: missing.toISOString() }, 'points.no_price');
    byAsset.set(
      asset,
      new Map(times.flatMap((at, index) => (prices[index] ? [[at.getTime(), prices[index]] as const] : []))),
    );
  }
  return (asset, at) => byAsset.get(asset)?.get(at.getTime());
}

/** The price, unless it is older than `maxAgeSeconds` of its feed allows. */
export function usableAt(fed: FedPrice, price: Price | undefined, at: Date): Price | undefined {
  return price !== undefined && isCounted(fed, price.observedAt, at) ? price : undefined;
}

type Need = FedPrice & { at: Date };

function needsOf<Listening extends Listener>(
  { activity: { listener, contract }, block }: BlockActivity<Listening>,
  expressionsOf: (listener: Listening) => (CheckedExpression | undefined)[],
): Need[] {
  const prices = fedPricesOf(expressionsOf(listener), listener.tokens.get(contract) ?? new Map());
  return prices.map((fed) => ({ ...fed, at: block.minedAt }));
}

const orderOf = ({ referral }: Rules) => (referral?.firstWins === false ? 'newest' : 'first');

async function writeReferrals(
  tx: Tx,
  rules: Rules,
  placed: readonly BlockActivity<ReferralListener>[],
): Promise<void> {
  const referrals = placed.flatMap(({ activity: { listener, values, logIndex }, block }): Referral[] => {
    const [user, referrer] = [values[listener.user], values[listener.referrer]];
    if (typeof user !== 'string' || typeof referrer !== 'string') return [];
    const isUnset = user === zeroAddress || referrer === zeroAddress;
    if (isUnset || (rules.referral?.noSelf === true && user === referrer)) return [];
    return [{ user, referrer, blockNumber: block.number, logIndex, linkedAt: block.minedAt }];
  });
  await insertReferrals(tx, referrals, orderOf(rules));
}

/** The points that users have earned on these days, for rules with a cap per user and day. */
async function loadEarned(tx: Tx, pendingAwards: readonly PendingAward[]) {
  const capped = pendingAwards.filter(({ rule }) => rule.perUserPerDay !== undefined);
  const byKey = new Map(capped.map((pendingAward) => [dayKey(pendingAward), pendingAward]));
  const questions = Array.from(byKey.values(), ({ rule, user, earnedAt }) => ({
    rule: rule.id,
    version: rule.version,
    user,
    day: startOf(dayOf(earnedAt)),
  }));
  const sums = await sumUserDays(tx, questions);
  return new Map(
    [...byKey.keys()].flatMap((key, index) => (sums[index] ? [[key, sums[index]] as const] : [])),
  );
}

/** The referrer of each pending award that gives a referrer a share, at the time of that award. */
export async function loadReferrers(
  db: Db,
  rules: Rules,
  pendingAwards: readonly PendingAward[],
): Promise<Map<PendingAward, Address>> {
  const sharing = pendingAwards.filter(({ rule }) => rule.referralShare.numerator > 0n);
  const questions = sharing.map(({ user, referredBefore }) => ({ user, before: referredBefore }));
  const referrers = await findReferrers(db, questions, orderOf(rules));
  return new Map(
    sharing.flatMap((pendingAward, index) =>
      referrers[index] ? [[pendingAward, referrers[index]] as const] : [],
    ),
  );
}
