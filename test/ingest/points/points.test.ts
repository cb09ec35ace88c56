import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { compareAwards } from '../../../src/audit/compare-awards.ts';
import { compareSums } from '../../../src/audit/compare-sums.ts';
import type { Bundle } from '../../../src/chain/blocks/bundle.ts';
import { encodeWord } from '../../../src/core/abi.ts';
import { decimal } from '../../../src/core/decimal.ts';
import { type Address, type Hash, type Hex, toBytes } from '../../../src/core/hex.ts';
import { createLog, silentLog } from '../../../src/core/log.ts';
import { parseEventSignature } from '../../../src/domain/event-signature.ts';
import { ofKind } from '../../../src/domain/points/activity.ts';
import { compileRules } from '../../../src/domain/points/compile.ts';
import { createActivityReader } from '../../../src/ingest/points/activities.ts';
import { awardEvents, createPointsProcessor } from '../../../src/ingest/points/points.ts';
import { applyRepairs } from '../../../src/store/audit/apply-repairs.ts';
import { listStoredBlocks } from '../../../src/store/audit/comparison.ts';
import { commitBlocks, findTip } from '../../../src/store/blocks/blocks.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { insertPrice } from '../../../src/store/prices/prices.ts';
import { addressOf, hashOf, noon } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { emptyDatabase } from '../../kit/empty-tables.ts';
import {
  expectAwards,
  GENESIS,
  givePrices,
  listAwardLines,
  type StoryBlock,
  type StoryLog,
  type StoryTransaction,
  storyRules,
} from '../../kit/points-story.ts';
import { rollbackTo } from '../../kit/rollback.ts';
import { sampleSize } from '../../kit/sample.ts';

const shop = addressOf(0x5001);
const gem = addressOf(0x5002);
const people = [0xa1, 0xa2, 0xa3].map(addressOf);
const router = addressOf(0xdead);

const { points, tokens } = storyRules({ shop, gem, deny: router });
const surroundings = {
  nativeSymbol: 'ETH',
  rewardSymbol: 'RWD',
  wrapped: undefined,
  feeds: { GEM: {} },
  tokens,
  pairs: [],
};
const compiled = compileRules(points, surroundings);
const read = createActivityReader(compiled.rules);
const processor = createPointsProcessor({
  rules: compiled.rules,
  log: createLog({ level: 'error', format: 'json' }),
});

const topicOf = (signature: string): Hash => parseEventSignature(signature).topic;
const topics = {
  paid: topicOf('Paid(address,uint256,string)'),
  bought: topicOf('Bought(uint256 amount)'),
  transfer: topicOf('Transfer(address,address,uint256)'),
  referred: topicOf('Referred(address,address)'),
};

function rawLog(log: StoryLog): { address: Address; topics: Hash[]; data: Hex } {
  switch (log.kind) {
    case 'paid':
      return {
        address: shop,
        topics: [topics.paid, `0x${encodeWord(log.user)}`],
        data: `0x${encodeWord(log.amount)}${encodeWord(64n)}${encodeWord(0n)}`,
      };
    case 'bought':
      return { address: shop, topics: [topics.bought], data: `0x${encodeWord(log.amount)}` };
    case 'transfer':
      return {
        address: gem,
        topics: [topics.transfer, `0x${encodeWord(log.from)}`, `0x${encodeWord(log.to)}`],
        data: `0x${encodeWord(log.amount)}`,
      };
    case 'referred':
      return {
        address: shop,
        topics: [topics.referred, `0x${encodeWord(log.user)}`, `0x${encodeWord(log.referrer)}`],
        data: '0x',
      };
  }
}

function bundleOf({ number, hash, minedAt, transactions }: StoryBlock, parentHash: Hash): Bundle {
  return {
    header: { number, hash, parentHash, minedAt },
    proved: true,
    traced: true,
    transactions: transactions.map((transaction) => ({
      ...{
        hash: transaction.hash,
        from: transaction.sender,
        to: shop,
        value: 0n,
        succeeded: true,
        calls: [],
      },
      logs: transaction.logs.map(rawLog),
    })),
  };
}

/** A chain that grows and reorganizes, followed by the processor. */
function openStory(database: Database) {
  const blocks: StoryBlock[] = [];
  let hashes = 0;
  const newHash = (): Hash => {
    hashes += 1;
    return hashOf(hashes);
  };

  async function mine(
    added: readonly { seconds: number; transactions: StoryTransaction[] }[],
  ): Promise<void> {
    const bundles: Bundle[] = [];
    for (const { seconds, transactions } of added) {
      const before = blocks.at(-1);
      const minedAt = new Date((before?.minedAt ?? GENESIS).getTime() + seconds * 1000);
      const block = { number: (before?.number ?? 0) + 1, hash: newHash(), minedAt, transactions };
      bundles.push(bundleOf(block, before?.hash ?? hashOf(0)));
      blocks.push(block);
    }
    const readBlocks = bundles.map((bundle) => {
      const { header, proved, traced } = bundle;
      return { header, proved, traced, transfers: [], pairEvents: [], activities: read(bundle) };
    });
    const committed = await commitBlocks(database, {
      expectedTip: await findTip(database),
      blocks: readBlocks,
      confirmations: 0,
      finalizedNumber: 0,
      now: noon,
      also: (tx) => processor.write(tx, readBlocks),
    });
    assert.equal(committed.outcome, 'committed');
  }

  return {
    blocks,
    newHash,
    mine,
    transaction: (sender: Address, ...logs: StoryLog[]): StoryTransaction => ({
      hash: newHash(),
      sender,
      logs,
    }),
    /** The transactions of the newest blocks, which are gone. */
    async reorg(depth: number): Promise<StoryTransaction[]> {
      const tip = await findTip(database);
      const dead = blocks.splice(Math.max(0, blocks.length - depth));
      if (tip === undefined || dead.length === 0) return [];
      const ancestorNumber = tip.number - dead.length;
      await rollbackTo(database, {
        ancestorNumber,
        expectedTip: tip,
        now: noon,
        also: (tx) => processor.undo(tx, ancestorNumber),
      });
      return dead.flatMap(({ transactions }) => transactions);
    },
    awards: () => listAwardLines(database),
  };
}

/** The blocks as verify reads them, those that are stored. */
async function readAgain(database: Database, story: readonly StoryBlock[]) {
  const stored = await listStoredBlocks(database, { from: 0, to: story.length });
  return story.flatMap((block) => {
    const bundle = bundleOf(block, hashOf(0));
    const { header, proved, traced } = bundle;
    const found = stored.get(block.number);
    const own = { header, proved, traced, transfers: [], pairEvents: [], activities: read(bundle) };
    return found === undefined ? [] : [{ read: own, stored: found }];
  });
}

/** Checks that verify derives the same awards and sums for any batches of blocks. */
async function checkVerified(database: Database, story: readonly StoryBlock[]): Promise<void> {
  const blocks = await readAgain(database, story);
  const events = (await listAwardLines(database)).filter((line) => !line.startsWith('hold '));
  for (const size of [1, 2, blocks.length]) {
    let equal = 0;
    for (let start = 0; start < blocks.length; start += size) {
      const side = { rules: compiled.rules, blocks: blocks.slice(start, start + size), limit: 100_000 };
      const compared = await compareAwards(database, side);
      assert.ok(compared !== 'too many');
      assert.deepEqual(compared.outcomes, []);
      equal += compared.equal;
    }
    assert.equal(equal, events.length);
  }
  const [first, last] = [blocks[0]?.read.header.minedAt, blocks.at(-1)?.read.header.minedAt];
  assert.ok(first !== undefined && last !== undefined);
  const times = { block: blocks.length, swapsKeptSince: first, first, last };
  assert.deepEqual(await compareSums(database, { pairs: [], ...times }), []);
}

/** What verify says about the awards of these blocks that are not equal. */
async function verifyAwards(database: Database, story: readonly StoryBlock[]): Promise<string[]> {
  const blocks = await readAgain(database, story);
  const compared = await compareAwards(database, { rules: compiled.rules, blocks, limit: 100 });
  assert.ok(compared !== 'too many');
  return compared.outcomes.map((one) => (typeof one === 'string' ? one : `${one.kind} in ${one.block}`));
}

const person = fc.constantFrom(...people);
const amounts = fc.oneof(fc.bigInt({ min: 0n, max: 900n }), fc.bigInt({ min: 0n, max: 10n ** 20n }));
const storyLog: fc.Arbitrary<StoryLog> = fc.oneof(
  fc.record({ kind: fc.constant('paid' as const), user: person, amount: fc.bigInt({ min: 0n, max: 900n }) }),
  fc.record({ kind: fc.constant('bought' as const), amount: amounts }),
  fc.record({
    kind: fc.constant('transfer' as const),
    from: fc.constantFrom(...people, addressOf(0)),
    to: person,
    amount: amounts,
  }),
  fc.record({ kind: fc.constant('referred' as const), user: person, referrer: person }),
);
const storyBlock = fc.record({
  seconds: fc.constantFrom(0, 12, 3_600, 7_199, 7_200, 40_000, 86_400, 200_000),
  transactions: fc.array(fc.record({ sender: person, logs: fc.array(storyLog, { maxLength: 3 }) }), {
    maxLength: 3,
  }),
  /** How many transactions of orphaned blocks are mined again. */
  again: fc.nat(2),
});
const steps = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: fc.array(storyBlock, { minLength: 1, maxLength: 4 }) },
    { weight: 1, arbitrary: fc.integer({ min: 1, max: 5 }) },
  ),
  { minLength: 1, maxLength: 10 },
);

test('the rules of this test have no problems', () => assert.deepEqual(compiled.problems, []));

onSampledDatabase(import.meta.url, ({ database, kind }) => {
  test('for any sequence of blocks and reorgs, the awards are those of the canonical chain', async () => {
    await fc.assert(
      fc.asyncProperty(steps, async (story) => {
        await emptyDatabase(database());
        await givePrices(database());
        const { blocks, mine, reorg, awards, transaction } = openStory(database());
        const pool: StoryTransaction[] = [];
        for (const step of story) {
          if (typeof step === 'number') {
            pool.push(...(await reorg(step)));
            continue;
          }
          await mine(
            step.map(({ seconds, transactions, again }) => ({
              seconds,
              transactions: [
                ...pool.splice(0, again),
                ...transactions.map(({ sender, logs }) => transaction(sender, ...logs)),
              ],
            })),
          );
        }
        if (blocks.length === 0) return;
        // The next block closes all days that have ended, also where several days lie between two blocks.
        await mine([{ seconds: 0, transactions: [] }]);
        assert.deepEqual(await awards(), expectAwards(blocks));
        await checkVerified(database(), blocks);
      }),
      { numRuns: sampleSize(kind === 'embedded' ? 10 : 20) },
    );
  });

  test('with maxAgeSeconds, a price that is older at the time of the block counts as missing', async () => {
    const [ann = shop] = people;
    const { rules } = compileRules(points, { ...surroundings, feeds: { GEM: { maxAgeMs: 5_000 } } });
    const price = { asset: 'GEM', price: decimal('2'), observedAt: GENESIS, source: 'test' };
    await insertPrice(database(), price);
    const logged: unknown[] = [];
    const log = { ...silentLog(), warn: (fields: unknown, event?: string) => logged.push([event, fields]) };
    const pointsAfter = async (ms: number) => {
      const logs: StoryLog[] = [{ kind: 'bought', amount: 3n * 10n ** 18n }];
      const minedAt = new Date(GENESIS.getTime() + ms);
      const block = { number: 1, hash: hashOf(1), minedAt };
      const bundle = bundleOf(
        { ...block, transactions: [{ hash: hashOf(9), sender: ann, logs }] },
        hashOf(0),
      );
      const activities = createActivityReader(rules)(bundle);
      const placed = activities.map((activity) => ({ activity, block: bundle.header }));
      const awards = await awardEvents(database(), ofKind(placed, 'event'), log);
      return awards.map((award) => String(award.points.numerator / award.points.denominator));
    };
    assert.deepEqual([await pointsAfter(5_000), await pointsAfter(5_001)], [['6'], []]);
    const at = new Date(GENESIS.getTime() + 5_001).toISOString();
    assert.deepEqual(logged, [['points.no_price', { asset: 'GEM', at }]]);
  });

  test('a price that arrived with the block may give or take an award, so verify does not judge it', async () => {
    const { mine, blocks, transaction } = openStory(database());
    const [ann] = people;
    assert.ok(ann !== undefined);
    const give = async (usd: string, ms: number) =>
      insertPrice(database(), {
        ...{ asset: 'GEM', price: decimal(usd), source: 'test' },
        observedAt: new Date(GENESIS.getTime() + ms),
      });
    const buy = () =>
      mine([{ seconds: 60, transactions: [transaction(ann, { kind: 'bought', amount: 10n ** 18n })] }]);
    await give('2', 0);
    await buy();
    await buy();
    await give('0.5', 115_000);
    await buy();
    await give('2', 175_000);
    const storedAfter = async (seconds: number) => {
      await database().query(
        sql`update block set stored_at = mined_at + ${seconds}::bigint * interval '1 s'`,
      );
      return verifyAwards(database(), blocks);
    };
    assert.deepEqual(await storedAfter(5), ['price_new', 'price_new'], 'within 10 s of the commit');
    assert.deepEqual(await storedAfter(6), ['unexpected in 2', 'missing in 3'], 'more than 10 s before it');
  });

  test('verify finds awards that are changed, missing or invented; repair recomputes wrong sums of days and months', async () => {
    const { mine, blocks, transaction } = openStory(database());
    const [ann, ben] = [people[0], people[1]];
    assert.ok(ann !== undefined && ben !== undefined);
    const pay = (amount: bigint) => transaction(ann, { kind: 'paid', user: ann, amount });
    for (const amount of [100n, 200n, 300n]) await mine([{ seconds: 12, transactions: [pay(amount)] }]);
    const verify = () => verifyAwards(database(), blocks);
    assert.deepEqual(await verify(), []);
    await database().query(sql`update point set points = points + 1 where block_number = 2`);
    await database().query(sql`update point set user_address = ${toBytes(ben)} where block_number = 3`);
    assert.deepEqual(await verify(), ['changed in 2', 'changed in 3']);
    const [first, last] = [blocks[0]?.minedAt, blocks.at(-1)?.minedAt];
    assert.ok(first !== undefined && last !== undefined);
    const sums = () => compareSums(database(), { pairs: [], swapsKeptSince: first, block: 3, first, last });
    // One day and one month of each user: too much for one user, none for the other.
    const wrong = await sums();
    assert.deepEqual(
      wrong.map(({ message }) => message.replace(/0x\w+/, 'somebody')),
      [
        'sum: points of somebody on 2026-01-30 in trading by rule pay 1 (user): 6 in 3 awards stored, 4 in 2 awards calculated',
        'sum: points of somebody on 2026-01-30 in trading by rule pay 1 (user): none stored, 3 in 1 award calculated',
        'sum: points of somebody in 2026-01: 6 in 3 awards stored, 4 in 2 awards calculated',
        'sum: points of somebody in 2026-01: none stored, 3 in 1 award calculated',
      ],
    );
    const repairs = wrong.flatMap((one) => one.repairs ?? []);
    assert.equal(
      (
        await applyRepairs(database(), repairs, {
          confirmations: 0,
          mayCreditTwice: false,
          readNow: async () => noon,
        })
      ).size,
      4,
    );
    assert.deepEqual(await sums(), []);
    await database().query(sql`delete from point where block_number = 3`);
    // A rule without earlier awards may have been configured later.
    await database().query(sql`delete from point where block_number = 1`);
    await database().query(sql`
      insert into point (rule, version, category, user_address, points, tx_hash, ordinal, role, block_number, block_hash,
        awarded_at, inputs)
      select rule, version, category, user_address, points, tx_hash, 7, role, block_number, block_hash, awarded_at, inputs
      from point where block_number = 2`);
    assert.deepEqual(
      new Set(await verify()),
      new Set(['changed in 2', 'unexpected in 2', 'missing in 3', 'rule_new']),
    );
    assert.equal((await sums()).length, 4);
  });
});
