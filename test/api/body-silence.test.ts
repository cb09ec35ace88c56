import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { untilSilent } from '../../src/api/body-silence.ts';
import { createTestClock } from '../kit/clock.ts';

const SILENCE_MS = 1_000;

function startBody() {
  const clock = createTestClock();
  const source = new PassThrough();
  const { body, isSilent } = untilSilent(source, { clock, silenceMs: SILENCE_MS });
  return { clock, source, pieces: body[Symbol.asyncIterator](), isSilent };
}

test('a body goes on for as long as each line comes in time, and is silent when one does not', async () => {
  const { clock, source, pieces, isSilent } = startBody();
  for (const text of ['a\n', 'b\n', 'c\n']) {
    const next = pieces.next();
    await nextTurn();
    clock.advance(SILENCE_MS - 1);
    source.write(text);
    assert.equal(String((await next).value), text);
  }
  assert.equal(isSilent(), false);
  const next = assert.rejects(pieces.next(), { statusCode: 408 });
  await nextTurn();
  clock.advance(SILENCE_MS);
  await next;
  assert.equal(isSilent(), true);
});

test('bytes that end no line do not prolong its time', async () => {
  const { clock, source, pieces, isSilent } = startBody();
  for (let count = 0; count < 4; count += 1) {
    const next = pieces.next();
    await nextTurn();
    clock.advance(SILENCE_MS / 4 - 1);
    source.write('a');
    assert.equal(String((await next).value), 'a');
  }
  const next = assert.rejects(pieces.next(), { statusCode: 408 });
  await nextTurn();
  clock.advance(4);
  await next;
  assert.equal(isSilent(), true);
});

test('the time in which nobody asks for a piece does not count', async () => {
  const { clock, source, pieces } = startBody();
  source.write('a');
  await pieces.next();
  clock.advance(10 * SILENCE_MS);
  assert.deepEqual(clock.waits(), []);
  const next = pieces.next();
  source.end('b');
  assert.equal(String((await next).value), 'b');
  assert.equal((await pieces.next()).done, true);
  assert.deepEqual(clock.waits(), []);
});

test('the error of a body that breaks off is passed on, and nothing waits any more', async () => {
  const { clock, source, pieces, isSilent } = startBody();
  const next = assert.rejects(pieces.next(), { message: 'gone' });
  await nextTurn();
  source.destroy(new Error('gone'));
  await next;
  assert.deepEqual([clock.waits(), isSilent()], [[], false]);
});
