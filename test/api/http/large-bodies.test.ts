import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createLargeBodies, TOO_LARGE } from '../../../src/api/http/large-bodies.ts';

const textOf = async (body: ReturnType<ReturnType<typeof createLargeBodies>['open']>) =>
  Buffer.concat((await body.finish()).pieces).toString();
const noRoom = { code: 'unavailable', reason: undefined, message: /^too many large lists/ };

test('a body may take all the room, and gives it back when it is finished, dropped or too large', async () => {
  const bodies = createLargeBodies(10);
  for (let round = 0; round < 3; round += 1) {
    const body = bodies.open();
    body.add('12345');
    body.add('äbc6');
    assert.equal(await textOf(body), '12345äbc6');
    const longer = bodies.open();
    longer.add('123456789');
    assert.throws(() => longer.add('ä'), { code: 'unavailable', reason: TOO_LARGE });
    const left = bodies.open();
    left.add('1234567890');
    left.drop();
  }
});

test('of bodies that together take too much, the largest fails, and the others are complete', async () => {
  const bodies = createLargeBodies(10);
  const [large, small, last] = [bodies.open(), bodies.open(), bodies.open()];
  large.add('123456');
  small.add('1234');
  small.add('5');
  assert.throws(() => large.add('7'), noRoom);
  await assert.rejects(large.finish(), noRoom);
  last.add('12345');
  assert.throws(() => last.add('6'), noRoom, 'the one that grows is the largest');
  assert.equal(await textOf(small), '12345');
});
