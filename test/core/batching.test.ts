import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createGroups } from '../../src/core/batching.ts';
import { waitUntil } from '../kit/wait.ts';

/** Groups whose work ends when the test ends it. */
function held(sizeMax: number, groupsMax?: number) {
  const groups: { items: readonly number[]; end: PromiseWithResolvers<void> }[] = [];
  const nth = (index: number) => waitUntil(() => groups[index]);
  const add = createGroups<number, number>({
    sizeMax,
    ...(groupsMax !== undefined && { groupsMax }),
    async work(items) {
      const end = Promise.withResolvers<void>();
      groups.push({ items, end });
      await end.promise;
      return (item) => item * 10;
    },
  });
  return { add, groups, nth };
}

test('the first item starts at once, and items that arrive meanwhile form groups up to the maximum size', async () => {
  const { add, groups, nth } = held(2);
  const first = add(1);
  await nth(0);
  const others = [add(2), add(3), add(4)];
  (await nth(0)).end.resolve();
  assert.equal(await first, 10);
  (await nth(1)).end.resolve();
  assert.equal(await others[0], 20);
  (await nth(2)).end.resolve();
  assert.deepEqual(await Promise.all(others), [20, 30, 40]);
  assert.deepEqual(
    groups.map(({ items }) => items),
    [[1], [2, 3], [4]],
  );
});

test('as many groups are worked on at once as allowed, and each item is in one of them', async () => {
  const { add, groups, nth } = held(2, 2);
  const added = [add(1)];
  await nth(0);
  added.push(add(2), add(3), add(4), add(5));
  await nth(1);
  assert.deepEqual(
    groups.map(({ items }) => items),
    [[1], [2, 3]],
  );
  (await nth(1)).end.resolve();
  (await nth(2)).end.resolve();
  (await nth(0)).end.resolve();
  assert.deepEqual(await Promise.all(added), [10, 20, 30, 40, 50]);
  assert.deepEqual(groups[2]?.items, [4, 5]);
});

test('a failed group rejects only its items', async () => {
  const { add, nth } = held(1);
  const [one, two] = [add(1), add(2)];
  (await nth(0)).end.reject(new Error('gone'));
  await assert.rejects(one, /gone/);
  (await nth(1)).end.resolve();
  assert.equal(await two, 20);
});
