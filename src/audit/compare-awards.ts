/**
 * Re-derives the points awards for events from the blocks, and compares them with the stored awards.
 */
import { decimalText } from '../core/decimal.ts';
import { silentLog } from '../core/log.ts';
import type { Award } from '../domain/award.ts';
import type { BlockActivity } from '../domain/points/activity.ts';
import { ofKind } from '../domain/points/activity.ts';
import type { Rules } from '../domain/points/rules.ts';
import { dayOf, startOf } from '../domain/points/window.ts';
import { capAwards, dayKey } from '../ingest/points/cap-awards.ts';
import { fedPricesOf } from '../ingest/points/environment.ts';
import type { PendingAward } from '../ingest/points/pending-awards.ts';
import { awardEvents, loadReferrers } from '../ingest/points/points.ts';
import type { ReadBlock } from '../ingest/read-block.ts';
import type { StoredBlock } from '../store/audit/comparison.ts';
import type { Db } from '../store/db/db.ts';
import { listAwardsOf, listRulesBefore, sumUserDaysBefore } from '../store/points/awards.ts';
import { listPrices } from '../store/prices/prices.ts';
import { type ComparisonOutcome, type Difference, differenceOf } from './compare.ts';

type AwardSide = {
  rules: Rules;
  /** Blocks that are stored as they are on the chain. */
  blocks: readonly { read: ReadBlock; stored: StoredBlock }[];
  /** The highest number of awards to compare. */
  limit: number;
};

type ComparedAwards = {
  equal: number;
  /** Awards for balances over days, and of rules that are not configured any more. */
  accrued: number;
  unknownRule: number;
  outcomes: ComparisonOutcome[];
};

/** The block's commit may have missed a price that arrived less than this before it. */
const SEEN_MS_MIN = 10_000;

/** 'too many' when there are at least `limit` awards. */
export async function compareAwards(
  snapshot: Db,
  { rules, blocks, limit }: AwardSide,
): Promise<ComparedAwards | 'too many'> {
  const [first, last] = [blocks[0]?.stored.number, blocks.at(-1)?.stored.number];
  const compared: ComparedAwards = { equal: 0, accrued: 0, unknownRule: 0, outcomes: [] };
  if (first === undefined || last === undefined) return compared;
  const stored = await listAwardsOf(snapshot, { from: first, to: last }, limit);
  if (stored.length === limit) return 'too many';
  const derived = new Map(
    (await deriveAwards(snapshot, rules, blocks)).map((award) => [keyOf(award), award]),
  );
  const storedBlocks = new Map(blocks.map((block) => [block.stored.number, block.stored]));
  const known = new Set(
    rules.listeners.flatMap((one) => (one.kind === 'event' ? [`${one.rule.id} ${one.rule.version}`] : [])),
  );
  const logs = new Set(
    blocks.flatMap(({ read }) => read.activities.map(({ txHash, ordinal }) => `${txHash} ${ordinal}`)),
  );
  for (const award of stored) {
    const block = award.block && storedBlocks.get(award.block.number);
    if (block === undefined) continue;
    if (rules.accruals.has(award.rule)) compared.accrued += 1;
    else if (!known.has(`${award.rule} ${award.version}`)) compared.unknownRule += 1;
    else {
      const own = derived.get(keyOf(award));
      derived.delete(keyOf(award));
      const changes = own && changesOf(award, own);
      if (changes?.length === 0) compared.equal += 1;
      else if (
        logs.has(`${award.txHash} ${award.ordinal}`) &&
        (await mayHaveOtherPrice(snapshot, rules, award, block))
      )
        compared.outcomes.push('price_new');
      else if (changes === undefined)
        compared.outcomes.push(difference('unexpected', award, 'the rules give no such award'));
      else compared.outcomes.push(difference('changed', award, changes.join(', ')));
    }
  }
  for (const award of derived.values())
    compared.outcomes.push(await judgeMissing(snapshot, rules, award, storedBlocks));
  return compared;
}

/** As the follower awards them with the blocks. Daily caps include awards of earlier blocks. */
async function deriveAwards(snapshot: Db, rules: Rules, blocks: AwardSide['blocks']): Promise<Award[]> {
  const placed = blocks.flatMap(({ read: { header, activities } }) =>
    activities.map((activity): BlockActivity => ({ activity, block: header })),
  );
  const pendingAwards = await awardEvents(snapshot, ofKind(placed, 'event'), silentLog());
  if (pendingAwards.length === 0) return [];
  const earnedBefore = await loadEarnedBefore(snapshot, pendingAwards, blocks[0]?.stored.number ?? 0);
  return capAwards(pendingAwards, {
    earnedBefore,
    referrers: await loadReferrers(snapshot, rules, pendingAwards),
  });
}

async function loadEarnedBefore(snapshot: Db, pendingAwards: readonly PendingAward[], blockNumber: number) {
  const byKey = new Map(
    pendingAwards.flatMap((pendingAward) =>
      pendingAward.rule.perUserPerDay === undefined ? [] : [[dayKey(pendingAward), pendingAward]],
    ),
  );
  const questions = Array.from(byKey.values(), ({ rule: { id: rule, version }, user, earnedAt }) => ({
    ...{ rule, version, user, day: startOf(dayOf(earnedAt)) },
  }));
  const sums = await sumUserDaysBefore(snapshot, questions, blockNumber);
  return new Map(
    [...byKey.keys()].flatMap((key, index) => (sums[index] ? [[key, sums[index]] as const] : [])),
  );
}

/** A rule without earlier awards may have been configured after the block was stored. */
async function judgeMissing(
  snapshot: Db,
  rules: Rules,
  award: Award,
  storedBlocks: ReadonlyMap<number, StoredBlock>,
): Promise<ComparisonOutcome> {
  const number = award.block?.number ?? 0;
  const block = storedBlocks.get(number);
  const isOld = (await listRulesBefore(snapshot, [award], number)).length > 0;
  if (!isOld) return 'rule_new';
  if (block !== undefined && (await mayHaveOtherPrice(snapshot, rules, award, block))) return 'price_new';
  return difference('missing', award, `${decimalText(award.points)} points for ${award.user} are not stored`);
}

/**
 * Whether a price that its rule needs may have arrived too late for the block's commit. It may also decide whether there is an award, so
 * this holds for missing and unexpected ones too.
 */
async function mayHaveOtherPrice(
  snapshot: Db,
  { listeners }: Rules,
  { rule: id, version }: Award,
  { minedAt, storedAt }: StoredBlock,
): Promise<boolean> {
  const needs = listeners.flatMap((one) => {
    if (one.kind !== 'event' || one.rule.id !== id || one.rule.version !== version) return [];
    return [...one.tokens.values()].flatMap((tokens) =>
      fedPricesOf([one.rule.when, one.rule.points], tokens),
    );
  });
  for (const asset of new Set(needs.map((need) => need.asset))) {
    const [price] = await listPrices(snapshot, asset, [minedAt]);
    if (price !== undefined && price.observedAt.getTime() >= storedAt.getTime() - SEEN_MS_MIN) return true;
  }
  return false;
}

const keyOf = ({ txHash, ordinal, rule, version, role }: Award) =>
  `${txHash} ${ordinal} ${rule} ${version} ${role}`;

function changesOf(stored: Award, own: Award): string[] {
  const textsOf = ({ user, category, points, block, awardedAt }: Award) => ({
    user,
    category,
    points: decimalText(points),
    block: block && `${block.number} ${block.hash}`,
    time: awardedAt.toISOString(),
  });
  const [is, should] = [textsOf(stored), textsOf(own)];
  const fields = Object.keys(is) as (keyof typeof is)[];
  return fields.flatMap((field) =>
    is[field] === should[field] ? [] : [`${field} ${is[field]} is stored, ${should[field]} is calculated`],
  );
}

function difference(kind: 'changed' | 'missing' | 'unexpected', award: Award, why: string): Difference {
  const { rule, version, txHash, ordinal, role, block } = award;
  const subject = `award of rule ${rule} ${version} (${role}) for log ${ordinal} of ${txHash}`;
  return differenceOf(kind, block?.number ?? 0, `${kind}: ${subject}: ${why}`, subject);
}
