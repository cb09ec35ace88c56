/**
 * Movements of balances with values that a contract makes up.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeWord } from '../../../src/core/abi.ts';
import { parseEventSignature } from '../../../src/domain/event-signature.ts';
import { ofKind } from '../../../src/domain/points/activity.ts';
import { compileRules } from '../../../src/domain/points/compile.ts';
import { changeOf, moveBalances } from '../../../src/ingest/points/accruals.ts';
import { createActivityReader } from '../../../src/ingest/points/activities.ts';
import { listPositions } from '../../../src/store/points/accruals.ts';
import { addressOf, alice, bob, hashOf, headerOf } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';

const vault = addressOf(0x5001);
const signature = 'Locked(address indexed user, uint256 amount, uint256 lockSeconds)';
const { rules, problems } = compileRules(
  {
    seasons: {},
    rules: [
      {
        ...{ id: 'lock', version: 1, type: 'accrual', category: 'staking', points: 'balanceSeconds / 86400' },
        movements: [
          { contracts: [vault], event: signature, user: 'arg:user', change: 'amount * lockSeconds' },
        ],
      },
    ],
  },
  { nativeSymbol: 'ETH', rewardSymbol: 'RWD', wrapped: undefined, feeds: {}, tokens: {}, pairs: [] },
);
const block = headerOf(7);
const priceAt = () => undefined;
const WORD_MAX = 2n ** 256n - 1n;

type Lock = [amount: bigint, lockSeconds: bigint];

/** The movements of a transaction in which these amounts are locked for these times. */
function movementsOf(...locks: readonly Lock[]) {
  return movementsIn(1, ...locks);
}

function movementsIn(tx: number, ...locks: readonly Lock[]) {
  const logs = locks.map(([amount, lockSeconds]) => ({
    address: vault,
    topics: [parseEventSignature(signature).topic, `0x${encodeWord(alice)}` as const],
    data: `0x${encodeWord(amount)}${encodeWord(lockSeconds)}` as const,
  }));
  const transaction = { from: bob, to: vault, value: 0n, succeeded: true, calls: [], logs, hash: hashOf(tx) };
  const bundle = { header: block, proved: true, traced: true, transactions: [transaction] };
  const activities = createActivityReader(rules)(bundle).map((activity) => ({ activity, block }));
  return ofKind(activities, 'movement');
}

test('the rules of this test have no problems', () => assert.deepEqual(problems, []));

test('a change with more digits than a balance can have does not count', () => {
  const [largest, larger] = movementsOf([WORD_MAX, 10n ** 20n], [WORD_MAX, 10n ** 21n]);
  assert.ok(largest !== undefined && larger !== undefined);
  assert.equal(changeOf(largest.activity, { block, priceAt }), WORD_MAX * 10n ** 20n);
  assert.equal(changeOf(larger.activity, { block, priceAt }), 'too_many');
});

onSampledDatabase(import.meta.url, ({ database }) => {
  test('changes beyond the largest balance leave it as it was, and the block is stored', async () => {
    const most: [bigint, bigint] = [WORD_MAX, 8n * 10n ** 20n];
    await database().transaction((tx) =>
      moveBalances(tx, movementsOf([5n, 2n], [WORD_MAX, WORD_MAX], most, most), priceAt),
    );
    const [position] = await listPositions(database(), [{ rule: 'lock', user: alice }]);
    assert.equal(position?.balance, 10n + WORD_MAX * 8n * 10n ** 20n);
  });

  test('a movement of nothing leaves the transaction that last changed the balance, and opens no balance', async () => {
    const find = async () => (await listPositions(database(), [{ rule: 'lock', user: alice }]))[0];
    const move = (movements: ReturnType<typeof movementsOf>) =>
      database().transaction((tx) => moveBalances(tx, movements, priceAt));
    await move(movementsIn(1, [0n, 2n]));
    assert.equal(await find(), undefined);
    await move(movementsIn(2, [5n, 2n]));
    await move(movementsIn(3, [0n, 2n]));
    const position = await find();
    assert.deepEqual([position?.balance, position?.txHash], [10n, hashOf(2)]);
  });
});
