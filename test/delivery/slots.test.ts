import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSlots } from '../../src/delivery/slots.ts';

const HERE = 'https://here.example';
const THERE = 'https://there.example';
const nobody = () => assert.fail('nobody waits');

test('a receiver has no more than its own slots, however many are free', () => {
  const slots = createSlots({ all: 10, doubtful: 5, perOrigin: 2 });
  assert.ok(slots.tryTake(HERE, 'promising', nobody));
  assert.ok(slots.tryTake(HERE, 'doubtful', nobody));
  assert.equal(
    slots.tryTake(HERE, 'promising', () => {}),
    false,
  );
  assert.ok(slots.tryTake(THERE, 'promising', nobody));
});

test('attempts that will probably hang leave the rest to those that will not', () => {
  const slots = createSlots({ all: 4, doubtful: 2, perOrigin: 10 });
  assert.ok(slots.tryTake(HERE, 'doubtful', nobody));
  assert.ok(slots.tryTake(HERE, 'doubtful', nobody));
  assert.equal(
    slots.tryTake(HERE, 'doubtful', () => {}),
    false,
  );
  assert.ok(slots.tryTake(HERE, 'promising', nobody));
  assert.ok(slots.tryTake(HERE, 'promising', nobody));
  assert.equal(
    slots.tryTake(THERE, 'promising', () => {}),
    false,
  );
});

test('a slot that is given back is offered in the order of asking, once for each who asked', () => {
  const slots = createSlots({ all: 1, doubtful: 1, perOrigin: 1 });
  const called: string[] = [];
  const first = () => called.push('first');
  const second = () => called.push('second');
  slots.tryTake(HERE, 'promising', nobody);
  slots.tryTake(THERE, 'promising', first);
  slots.tryTake(THERE, 'promising', second);
  slots.tryTake(THERE, 'promising', first);
  slots.give(HERE, 'promising');
  assert.deepEqual(called, ['first']);
  slots.tryTake(HERE, 'promising', nobody);
  slots.give(HERE, 'promising');
  assert.deepEqual(called, ['first', 'second']);
  slots.tryTake(HERE, 'promising', nobody);
  slots.give(HERE, 'promising');
  assert.deepEqual(called, ['first', 'second']);
});

test('who waits for one receiver is called when that receiver has a slot', () => {
  const slots = createSlots({ all: 10, doubtful: 10, perOrigin: 1 });
  let calls = 0;
  slots.tryTake(HERE, 'doubtful', nobody);
  slots.tryTake(THERE, 'doubtful', nobody);
  slots.tryTake(HERE, 'doubtful', () => {
    calls += 1;
  });
  slots.give(THERE, 'doubtful');
  assert.equal(calls, 0);
  slots.give(HERE, 'doubtful');
  assert.equal(calls, 1);
});

test('a freed promising slot goes to a doubtful attempt only as long as those have not their share', () => {
  const slots = createSlots({ all: 2, doubtful: 1, perOrigin: 10 });
  let calls = 0;
  const count = () => {
    calls += 1;
  };
  slots.tryTake(HERE, 'doubtful', nobody);
  slots.tryTake(HERE, 'promising', nobody);
  slots.tryTake(THERE, 'doubtful', count);
  slots.give(HERE, 'promising');
  assert.equal(calls, 0);
  slots.give(HERE, 'doubtful');
  assert.equal(calls, 1);
});

test('who leaves is not called any more', () => {
  const slots = createSlots({ all: 1, doubtful: 1, perOrigin: 1 });
  slots.tryTake(HERE, 'promising', nobody);
  slots.tryTake(HERE, 'promising', nobody);
  slots.tryTake(THERE, 'doubtful', nobody);
  slots.leave(HERE, nobody);
  slots.leave(THERE, nobody);
  slots.give(HERE, 'promising');
});
