/**
 * Points rules and the expected awards on a chain, calculated from its whole history in the simplest way. Tests compare the
 * service with this result.
 */
import { type Decimal, decimal, decimalText } from '../../src/core/decimal.ts';
import type { Address, Hash } from '../../src/core/hex.ts';
import type { PointsText, Surroundings } from '../../src/domain/points/text.ts';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { insertPrice } from '../../src/store/prices/prices.ts';

export type StoryLog =
  | { kind: 'paid'; user: Address; amount: bigint }
  | { kind: 'bought'; amount: bigint }
  | { kind: 'transfer'; from: Address; to: Address; amount: bigint }
  | { kind: 'referred'; user: Address; referrer: Address };
export type StoryTransaction = { hash: Hash; sender: Address; logs: StoryLog[] };
export type StoryBlock = { number: number; hash: Hash; minedAt: Date; transactions: StoryTransaction[] };

/** An award as one line of text, for comparisons. */
type Line = string;

const DAY_MS = 86_400_000;
export const GENESIS = new Date('2026-01-30T22:00:00.000Z');
const startDay = Math.floor(GENESIS.getTime() / DAY_MS);
const isoDay = (day: number): string => new Date(day * DAY_MS).toISOString().slice(0, 10);
/** Points are doubled for two days. From the fourth day, another version of the rules applies. */
const DOUBLE = { from: startDay + 1, to: startDay + 3 };
const SECOND_VERSION = startDay + 4;
const CAPS = { perTx: 5, perUserPerDay: 12 };
const SHARE = decimal('0.1');
/** The number of days after the start, and the price from noon of that day. */
const GEM_PRICES: [day: number, price: string][] = [
  [1, '2.345'],
  [2, '1.99999'],
  [5, '17'],
];
const zeroAddress = `0x${'0'.repeat(40)}`;

const dayOf = (time: Date) => Math.floor(time.getTime() / DAY_MS);
const floored = (value: Decimal, digits: number) => value.round(digits, 0);
const least = (...values: Decimal[]) => values.reduce((one, other) => (other.lt(one) ? other : one));

/** The rules of these tests. A payment of 100 units is worth one point. */
export function storyRules({ shop, gem, deny }: { shop: Address; gem: Address; deny: Address }): {
  points: PointsText;
  tokens: Surroundings['tokens'];
} {
  const paid = { event: 'Paid(address indexed user, uint256 amount, string note)', contracts: [shop] };
  const trading = { type: 'event', category: 'trading', version: 1 } as const;
  return {
    tokens: { GEM: { address: gem, decimals: 18 }, SHOP: { address: shop, decimals: 2, usd: 1 } },
    points: {
      seasons: { double: { from: isoDay(DOUBLE.from), to: isoDay(DOUBLE.to) } },
      referral: {
        source: { event: 'Referred(address indexed user, address indexed referrer)', contracts: [shop] },
        user: 'arg:user',
        referrer: 'arg:referrer',
        share: Number(SHARE.toString()),
        firstWins: true,
        noSelf: true,
      },
      rules: [
        {
          ...trading,
          id: 'pay',
          user: 'arg:user',
          deny: [deny],
          source: { ...paid, contracts: ['token:SHOP'] },
          points: 'amount(amount, token)',
          multipliers: [{ season: 'double', x: 2 }],
          caps: CAPS,
        },
        {
          ...trading,
          id: 'pay',
          version: 2,
          from: isoDay(SECOND_VERSION),
          user: 'arg:user',
          source: paid,
          points: 'usd(amount, SHOP) * 3',
        },
        {
          ...trading,
          id: 'buy',
          user: 'tx.from',
          source: { event: 'Bought(uint256 amount)', contracts: [shop] },
          points: 'floor(usd(amount, GEM))',
        },
        {
          type: 'accrual',
          id: 'hold',
          version: 1,
          category: 'holding',
          token: 'token:GEM',
          points: 'balanceSeconds / 1000',
        },
      ],
    },
  };
}

/** Stores the prices of these tests. */
export async function givePrices(database: Database): Promise<void> {
  for (const [day, price] of GEM_PRICES) {
    const observedAt = new Date((startDay + day) * DAY_MS + DAY_MS / 2);
    await insertPrice(database, { asset: 'GEM', price: decimal(price), observedAt, source: 'test' });
  }
}

/** The stored awards, in the form that `expectAwards` returns. */
export async function listAwardLines(database: Database): Promise<string[]> {
  const rows = await database.query<{ line: string; awarded_at: Date }>(sql`
    select rule || ' ' || version || ' ' || role || ' 0x' || encode(user_address, 'hex') || ' ' || trim_scale(points)
      || ' 0x' || encode(tx_hash, 'hex') as line, awarded_at
    from point order by id limit 100000`);
  return rows.map(({ line, awarded_at }) => `${line} ${awarded_at.toISOString()}`).sort();
}

/** The expected awards for events in chain order, then those for days that ended before the last block. */
export function expectAwards(blocks: readonly StoryBlock[]): Line[] {
  const referrers = new Map<Address, { referrer: Address; at: Date }>();
  const earned = new Map<string, Decimal>();
  const lines: Line[] = [];
  const moves: { at: Date; user: Address; change: bigint; hash: Hash }[] = [];
  const give = (
    award: { rule: string; version: number; user: Address; points: Decimal; hash: Hash; at: Date },
    before?: Date,
  ) => {
    const { rule, version, hash, at } = award;
    const line = (role: string, user: Address, points: Decimal) =>
      `${rule} ${version} ${role} ${user} ${decimalText(points)} ${hash} ${at.toISOString()}`;
    lines.push(line('user', award.user, award.points));
    const link = referrers.get(award.user);
    if (link === undefined || (before !== undefined && link.at >= before)) return;
    const share = floored(award.points.times(SHARE), 18);
    if (share.gt(0)) lines.push(line('referrer', link.referrer, share));
  };

  for (const { minedAt, transactions } of blocks) {
    const day = dayOf(minedAt);
    for (const { hash, sender, logs } of transactions) {
      let inTransaction = decimal(0n);
      for (const log of logs) {
        if (log.kind === 'referred') {
          if (log.user !== log.referrer && !referrers.has(log.user))
            referrers.set(log.user, { referrer: log.referrer, at: minedAt });
        } else if (log.kind === 'transfer') {
          moves.push({ at: minedAt, user: log.from, change: -log.amount, hash });
          moves.push({ at: minedAt, user: log.to, change: log.amount, hash });
        } else if (log.kind === 'bought') {
          const price = GEM_PRICES.findLast(
            ([after]) => minedAt.getTime() >= (startDay + after) * DAY_MS + DAY_MS / 2,
          );
          const points = floored(
            decimal(log.amount)
              .times(decimal(price?.[1] ?? '0'))
              .div(decimal(10n ** 18n)),
            0,
          );
          if (points.gt(0)) give({ rule: 'buy', version: 1, user: sender, points, hash, at: minedAt });
        } else {
          const whole = decimal(log.amount).div(decimal(100n));
          const version = day >= SECOND_VERSION ? 2 : 1;
          const key = `${log.user} ${day}`;
          const today = earned.get(key) ?? decimal(0n);
          const doubled = whole.times(day >= DOUBLE.from && day < DOUBLE.to ? decimal(2n) : decimal(1n));
          const points =
            version === 2
              ? whole.times(decimal(3n))
              : least(
                  doubled,
                  decimal(String(CAPS.perTx)).minus(inTransaction),
                  decimal(String(CAPS.perUserPerDay)).minus(today),
                );
          if (points.lte(0)) continue;
          if (version === 1) {
            inTransaction = inTransaction.plus(points);
            earned.set(key, today.plus(points));
          }
          give({ rule: 'pay', version, user: log.user, points, hash, at: minedAt });
        }
      }
    }
  }

  const tip = blocks.at(-1);
  if (tip === undefined) return [];
  for (const user of new Set(moves.map((move) => move.user))) {
    if (user === zeroAddress) continue;
    const own = moves.filter((move) => move.user === user);
    for (let day = startDay; day < dayOf(tip.minedAt); day += 1) {
      const [from, to] = [day * DAY_MS, (day + 1) * DAY_MS];
      let sum = 0n;
      let balance = 0n;
      let since = from;
      for (const { at, change } of [
        ...own.filter(({ at }) => at.getTime() < to),
        { at: new Date(to), change: 0n },
      ]) {
        const until = Math.max(from, at.getTime());
        if (balance > 0n) sum += (balance * BigInt(until - since)) / 1000n;
        since = until;
        balance += change;
      }
      const last = own.findLast(({ at }) => at.getTime() < to);
      const points = floored(decimal(sum).div(decimal(1000n)), 18);
      if (last === undefined || points.lte(0)) continue;
      give({ rule: 'hold', version: 1, user, points, hash: last.hash, at: new Date(to - 1) }, new Date(to));
    }
  }
  return lines.sort();
}
