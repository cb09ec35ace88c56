/**
 * Turns pending awards into awards: applies caps in the order of the chain and adds the shares of referrers. Pure.
 */
import { type Decimal, decimalText } from '../../core/decimal.ts';
import {
  add,
  compare,
  type Fraction,
  floorTo,
  fractionFrom,
  least,
  multiply,
  subtract,
  zero,
} from '../../core/fraction.ts';
import type { Address } from '../../core/hex.ts';
import type { Award } from '../../domain/award.ts';
import { dayOf } from '../../domain/points/window.ts';
import { POINTS_DIGITS, textOf } from './environment.ts';
import type { PendingAward } from './pending-awards.ts';

/** The category of referrers' awards (spec 2.1). */
const REFERRAL = 'referral';

/** The key of a cap per user and day: one version of a rule, a user, a day in UTC. */
export function dayKey({ rule: { id, version }, user, earnedAt }: PendingAward): string {
  return `${id} ${version} ${user} ${dayOf(earnedAt)}`;
}

/**
 * Awards for these pending awards, in this order. `earnedBefore` holds the points awarded before, by dayKey; `referrers` holds
 * the referrer of the user of each pending award.
 */
export function capAwards(
  pendingAwards: readonly PendingAward[],
  {
    earnedBefore,
    referrers,
  }: { earnedBefore: ReadonlyMap<string, Decimal>; referrers: ReadonlyMap<PendingAward, Address> },
): Award[] {
  const byDay = createMeter((key) => earnedBefore.get(key));
  const byTransaction = createMeter(() => undefined);
  return pendingAwards.flatMap((pendingAward): Award[] => {
    const { rule, inputs } = pendingAward;
    const transactionKey = `${rule.id} ${rule.version} ${pendingAward.txHash}`;
    const limits: [name: string, cap: Fraction | undefined, used: Fraction][] = [
      ['perTx', rule.perTx, byTransaction.read(transactionKey)],
      ['perUserPerDay', rule.perUserPerDay, byDay.read(dayKey(pendingAward))],
    ];
    let allowed = pendingAward.points;
    for (const [name, cap, used] of limits) {
      if (cap === undefined) continue;
      inputs[`cap.${name}`] = textOf(cap);
      inputs[`used.${name}`] = textOf(used);
      allowed = least(allowed, subtract(cap, used));
    }
    const points = floorTo(allowed, POINTS_DIGITS);
    if (points.lte(0)) return [];
    byTransaction.count(transactionKey, points);
    byDay.count(dayKey(pendingAward), points);
    const award = awardOf(pendingAward, points);
    return [award, ...referralOf(pendingAward, award, referrers.get(pendingAward))];
  });
}

function awardOf(
  { rule, user, txHash, ordinal, block, earnedAt, inputs }: PendingAward,
  points: Decimal,
): Award {
  const { id, version, category } = rule;
  const { number, hash } = block;
  const place = { txHash, ordinal, block: { number, hash }, awardedAt: earnedAt };
  return { rule: id, version, category, user, points, ...place, role: 'user', inputs };
}

function referralOf({ rule }: PendingAward, award: Award, referrer: Address | undefined): Award[] {
  if (referrer === undefined || rule.deny.has(referrer)) return [];
  if (compare(rule.referralShare, zero) <= 0) return [];
  const points = floorTo(multiply(fractionFrom(award.points), rule.referralShare), POINTS_DIGITS);
  if (points.lte(0)) return [];
  const inputs = {
    referred: award.user,
    points: decimalText(award.points),
    share: textOf(rule.referralShare),
  };
  return [{ ...award, category: REFERRAL, user: referrer, points, role: 'referrer', inputs }];
}

function createMeter(before: (key: string) => Decimal | undefined) {
  const used = new Map<string, Fraction>();
  const read = (key: string): Fraction => {
    const known = used.get(key);
    if (known !== undefined) return known;
    const start = before(key);
    return start === undefined ? zero : fractionFrom(start);
  };
  return {
    read,
    count(key: string, points: Decimal): void {
      used.set(key, add(read(key), fractionFrom(points)));
    },
  };
}
