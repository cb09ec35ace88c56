/**
 * From claims to awards: caps in the order of the chain, and what the referrer of a user gets. Pure.
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
import type { Claim } from './claims.ts';
import { POINTS_DIGITS, textOf } from './environment.ts';

/** The category of what referrers get (spec 2.1). */
const REFERRAL = 'referral';

/** What caps by user and day are about: one version of a rule, a user, a day in UTC. */
export function dayKey({ rule: { id, version }, user, earnedAt }: Claim): string {
  return `${id} ${version} ${user} ${dayOf(earnedAt)}`;
}

/**
 * The awards of the claims in this order. `earnedBefore` is what was awarded before, by dayKey; `referrers` whom each claim's
 * user was referred by.
 */
export function settleClaims(
  claims: readonly Claim[],
  {
    earnedBefore,
    referrers,
  }: { earnedBefore: ReadonlyMap<string, Decimal>; referrers: ReadonlyMap<Claim, Address> },
): Award[] {
  const byDay = createMeter((key) => earnedBefore.get(key));
  const byTransaction = createMeter(() => undefined);
  return claims.flatMap((claim): Award[] => {
    const { rule, inputs } = claim;
    const transactionKey = `${rule.id} ${rule.version} ${claim.txHash}`;
    const limits: [name: string, cap: Fraction | undefined, used: Fraction][] = [
      ['perTx', rule.perTx, byTransaction.read(transactionKey)],
      ['perUserPerDay', rule.perUserPerDay, byDay.read(dayKey(claim))],
    ];
    let allowed = claim.points;
    for (const [name, cap, used] of limits) {
      if (cap === undefined) continue;
      inputs[`cap.${name}`] = textOf(cap);
      inputs[`used.${name}`] = textOf(used);
      allowed = least(allowed, subtract(cap, used));
    }
    const points = floorTo(allowed, POINTS_DIGITS);
    if (points.lte(0)) return [];
    byTransaction.count(transactionKey, points);
    byDay.count(dayKey(claim), points);
    const award = awardOf(claim, points);
    return [award, ...referralOf(claim, award, referrers.get(claim))];
  });
}

function awardOf({ rule, user, txHash, ordinal, block, earnedAt, inputs }: Claim, points: Decimal): Award {
  const { id, version, category } = rule;
  const { number, hash } = block;
  const place = { txHash, ordinal, block: { number, hash }, awardedAt: earnedAt };
  return { rule: id, version, category, user, points, ...place, role: 'user', inputs };
}

function referralOf({ rule }: Claim, award: Award, referrer: Address | undefined): Award[] {
  if (referrer === undefined || compare(rule.referralShare, zero) <= 0) return [];
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
