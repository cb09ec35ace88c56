/**
 * Awards for tests, and a check that the stored sums match sums calculated from the awards.
 */
import { decimal } from '../../src/core/decimal.ts';
import type { Award } from '../../src/domain/award.ts';
import type { Db } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { alice, hashOf, headerOf } from './chain-story.ts';

let awardCount = 0;

/** An award of ten points of rule `swap` for alice, in a separate transaction of block 1; `parts` overrides fields. */
export function awardOf(parts: Partial<Omit<Award, 'points'>> & { points?: string } = {}): Award {
  awardCount += 1;
  const { number, hash } = headerOf(1);
  return {
    rule: 'swap',
    version: 1,
    category: 'trading',
    user: alice,
    txHash: hashOf(0x5000_0000 + awardCount),
    ordinal: 0,
    role: 'user',
    block: { number, hash },
    awardedAt: new Date('2026-01-15T12:00:00.000Z'),
    inputs: {},
    ...parts,
    points: decimal(parts.points ?? '10'),
  };
}

/** Stored sums that differ from those calculated from the awards. The list must always be empty. */
export async function listWrongSums(db: Db): Promise<unknown[]> {
  return db.query(sql`
    with day as (
      select user_address, (awarded_at at time zone 'UTC')::date as day, category, rule, version, role,
        sum(points) as points, count(*) as award_count
      from point group by 1, 2, 3, 4, 5, 6
    ), month as (
      select date_trunc('month', awarded_at at time zone 'UTC')::date as month, user_address, sum(points) as points,
        count(*) as award_count
      from point group by 1, 2
    )
    select 'day' as sums, to_jsonb(d) as stored, to_jsonb(day) as facts
    from point_day d full join day using (user_address, day, category, rule, version, role)
    where (d.points, d.award_count) is distinct from (day.points, day.award_count)
    union all
    select 'month', to_jsonb(m), to_jsonb(month)
    from point_month m full join month using (month, user_address)
    where (m.points, m.award_count) is distinct from (month.points, month.award_count)
    order by 1 limit 10`);
}
