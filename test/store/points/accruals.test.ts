import assert from 'node:assert/strict';
import { test } from 'node:test';
import { insertChain } from '../../../src/store/blocks/blocks.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import {
  listOpenPositions,
  listPositions,
  type Position,
  pruneFinalAccruals,
  revertAccruals,
  savePositions,
} from '../../../src/store/points/accruals.ts';
import { alice, bob, hashOf, later } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';

function positionOf(parts: Partial<Position> = {}): Position {
  const numbers = { balance: 2n ** 256n, day: 20_000, balanceSeconds: -(2n ** 300n) };
  return {
    rule: 'hold',
    user: alice,
    ...numbers,
    touchedAt: later(1),
    txHash: hashOf(1),
    touch: 2 ** 24,
    ...parts,
  };
}

/** Saves a position that a block changes. */
async function change(database: Database, position: Position, blockNumber: number): Promise<void> {
  const [before] = await listPositions(database, [position]);
  const { rule, user } = position;
  await database.transaction((tx) =>
    savePositions(tx, [position], [{ rule, user, blockNumber, position: before }]),
  );
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('positions are read as they were saved, with all digits', async () => {
    const positions = [positionOf({ user: bob, balance: -1n }), positionOf()];
    await database().transaction((tx) => savePositions(tx, positions, []));
    assert.deepEqual(await listPositions(database(), positions), positions);
    assert.deepEqual(await listPositions(database(), [{ rule: 'other', user: alice }]), []);
  });

  test('a reorg restores the positions from before its first block, and deletes new ones', async () => {
    const first = positionOf({ balance: 1n });
    await change(database(), first, 5);
    await change(database(), positionOf({ balance: 2n }), 6);
    await change(database(), positionOf({ balance: 3n }), 8);
    await change(database(), positionOf({ user: bob }), 8);
    await database().transaction((tx) => revertAccruals(tx, 5));
    assert.deepEqual(await listPositions(database(), [first, { rule: 'hold', user: bob }]), [first]);
    await database().transaction((tx) => revertAccruals(tx, 4));
    assert.deepEqual(await listPositions(database(), [first]), []);
  });

  test('a position that a block changes twice is restored to its value before the first change', async () => {
    const first = positionOf({ balance: 1n });
    await change(database(), first, 5);
    await change(database(), positionOf({ balance: 2n }), 6);
    await change(database(), positionOf({ balance: 3n }), 6);
    await database().transaction((tx) => revertAccruals(tx, 5));
    assert.deepEqual(await listPositions(database(), [first]), [first]);
  });

  test('open positions are those of the given rules with a day before today to close, oldest first', async () => {
    const some = { balanceSeconds: 0n, balance: 1n };
    const positions = [
      positionOf({ ...some, day: 20_002, user: bob }),
      positionOf({ ...some, day: 20_001 }),
      positionOf({ ...some, day: 20_000, rule: 'kept', balance: 0n, balanceSeconds: 1n }),
      positionOf({ ...some, day: 20_000, rule: 'gone' }),
      positionOf({ ...some, day: 20_000, rule: 'kept', user: bob, balance: 0n }),
    ];
    await database().transaction((tx) => savePositions(tx, positions, []));
    const open = (limit: number) =>
      database().transaction((tx) =>
        listOpenPositions(tx, { rules: ['hold', 'kept'], today: 20_002, limit }),
      );
    assert.deepEqual(await open(9), [positions[2], positions[1]]);
    assert.deepEqual(await open(1), [positions[2]]);
  });

  test('former positions are pruned in steps once their blocks are final, and a reorg restores the others', async () => {
    await insertChain(database(), 31_337, hashOf(1));
    await database().query(sql`update chain set finalized_number = 6`);
    for (const block of [5, 6, 7]) await change(database(), positionOf({ balance: BigInt(block) }), block);
    const count = async () => (await database().query(sql`select from accrual_before limit 9`)).length;
    await database().transaction((tx) => pruneFinalAccruals(tx, 1));
    assert.equal(await count(), 2);
    await database().transaction((tx) => pruneFinalAccruals(tx, 9));
    assert.equal(await count(), 1);
    await database().transaction((tx) => revertAccruals(tx, 6));
    assert.equal((await listPositions(database(), [positionOf()]))[0]?.balance, 6n);
  });
});
