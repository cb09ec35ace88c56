import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Fault, messageOf } from '../../src/core/fault.ts';

test('a Fault carries its code, its problems and its cause', () => {
  const cause = new Error('refused');
  const fault = new Fault('unavailable', 'no node', { problems: [{ path: '/a', message: 'is bad' }], cause });
  assert.ok(fault instanceof Error);
  assert.equal(fault.name, 'Fault');
  assert.equal(fault.code, 'unavailable');
  assert.deepEqual(fault.problems, [{ path: '/a', message: 'is bad' }]);
  assert.equal(fault.cause, cause);
  assert.deepEqual(new Fault('invalid', 'no').problems, []);
  assert.ok(!('cause' in new Fault('invalid', 'no')));
});

test('a message contains the whole chain of causes, and is never empty', () => {
  const inner = new Error('connection refused');
  const middle = new Error('database', { cause: inner });
  assert.equal(
    messageOf(new Fault('unavailable', 'start', { cause: middle })),
    'start: database: connection refused',
  );
  assert.equal(
    messageOf(new AggregateError([new Error('::1 refused'), new Error('127.0.0.1 refused')])),
    '::1 refused; 127.0.0.1 refused',
  );
  assert.equal(messageOf(new TypeError('')), 'TypeError');
  assert.equal(messageOf('a text'), 'a text');
  assert.equal(messageOf(undefined), 'undefined');
});
