import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import type { Bundle } from '../../src/chain/bundle.ts';
import { parseEventSignature } from '../../src/core/event-signature.ts';
import type { Address, Hash, Hex } from '../../src/core/hex.ts';
import { createLog } from '../../src/core/log.ts';
import { compileRules } from '../../src/core/points/compile.ts';
import { createActivityReader } from '../../src/ingest/activities.ts';
import { createPointsLedger } from '../../src/ingest/points.ts';
import { commitBlocks, findTip } from '../../src/store/blocks.ts';
import type { Database } from '../../src/store/db.ts';
import { sql } from '../../src/store/sql.ts';
import { addressOf, hashOf, noon } from '../kit/chain-story.ts';
import { emptyDatabase, onEachDatabase } from '../kit/each-database.ts';
import {
  expectAwards,
  GENESIS,
  givePrices,
  listAwardLines,
  type StoryBlock,
  type StoryLog,
  type StoryTransaction,
  storyRules,
} from '../kit/points-story.ts';
import { rollbackTo } from '../kit/rollback.ts';

const shop = addressOf(0x5001);
const gem = addressOf(0x5002);
const people = [0xa1, 0xa2, 0xa3].map(addressOf);
const router = addressOf(0xdead);

const { points, tokens } = storyRules({ shop, gem, deny: router });
const surroundings = {
  nativeSymbol: 'ETH',
  rewardSymbol: 'RWD',
  wrapped: undefined,
  feeds: ['GEM'],
  tokens,
  pairs: [],
};
const compiled = compileRules(points, surroundings);
const read = createActivityReader(compiled.rules);
const ledger = createPointsLedger({
  rules: compiled.rules,
  log: createLog({ level: 'error', format: 'json' }),
});

const word = (value: bigint | Address): string => BigInt(value).toString(16).padStart(64, '0');
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
        topics: [topics.paid, `0x${word(log.user)}`],
        data: `0x${word(log.amount)}${word(64n)}${word(0n)}`,
      };
    case 'bought':
      return { address: shop, topics: [topics.bought], data: `0x${word(log.amount)}` };
    case 'transfer':
      return {
        address: gem,
        topics: [topics.transfer, `0x${word(log.from)}`, `0x${word(log.to)}`],
        data: `0x${word(log.amount)}`,
      };
    case 'referred':
      return {
        address: shop,
        topics: [topics.referred, `0x${word(log.user)}`, `0x${word(log.referrer)}`],
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

/** A chain that grows and forks, followed by the ledger. */
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
      releasedNumber: 0,
      finalizedNumber: 0,
      now: noon,
      also: (tx) => ledger.write(tx, readBlocks),
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
    async fork(depth: number): Promise<StoryTransaction[]> {
      const tip = await findTip(database);
      const dead = blocks.splice(Math.max(0, blocks.length - depth));
      if (tip === undefined || dead.length === 0) return [];
      const ancestorNumber = tip.number - dead.length;
      await rollbackTo(database, {
        ancestorNumber,
        expectedTip: tip,
        now: noon,
        also: (tx) => ledger.undo(tx, ancestorNumber),
      });
      return dead.flatMap(({ transactions }) => transactions);
    },
    awards: () => listAwardLines(database),
  };
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
  /** How many transactions of dead blocks are mined again. */
  again: fc.nat(2),
});
const steps = fc.array(
  fc.oneof(
    { weight: 3, arbitrary: fc.array(storyBlock, { minLength: 1, maxLength: 4 }) },
    { weight: 1, arbitrary: fc.integer({ min: 1, max: 5 }) },
  ),
  { minLength: 1, maxLength: 10 },
);

test('the rules of this story have no problems', () => assert.deepEqual(compiled.problems, []));

onEachDatabase(({ database, kind }) => {
  test('whatever is mined together, forked away and mined again, the awards are those of the canonical chain', async () => {
    await fc.assert(
      fc.asyncProperty(steps, async (story) => {
        await emptyDatabase(database());
        await givePrices(database());
        const { blocks, mine, fork, awards, transaction } = openStory(database());
        const pool: StoryTransaction[] = [];
        for (const step of story) {
          if (typeof step === 'number') {
            pool.push(...(await fork(step)));
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
        // Days are closed one in each transaction; the time stands still meanwhile.
        for (let count = 0; count < 40; count += 1) {
          await mine([{ seconds: 0, transactions: [] }]);
          const [open] = await database().query(
            sql`select from accrual where (balance > 0 or balance_seconds > 0) and day < ${Math.floor((blocks.at(-1)?.minedAt.getTime() ?? 0) / 86_400_000)} limit 1`,
          );
          if (open === undefined) break;
        }
        assert.deepEqual(await awards(), expectAwards(blocks));
      }),
      { numRuns: kind === 'embedded' ? 10 : 20 },
    );
  });
});
