import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { untilSilent } from '../../../src/api/http/body-silence.ts';
import { Fault } from '../../../src/core/fault.ts';
import { createTestClock } from '../../kit/clock.ts';

const SILENCE_MS = 1_000;

function startBody() {
  const clock = createTestClock();
  const source = new PassThrough();
  const checks: (() => Promise<void>)[] = [];
  const check = () => checks.shift()?.() ?? Promise.resolve();
  const { body, isOver } = untilSilent(source, { clock, silenceMs: SILENCE_MS, check });
  return { clock, source, pieces: body[Symbol.asyncIterator](), isOver, checks };
}

test('a body is read as long as each line arrives in time, and ends when one does not', async () => {
  const { clock, source, pieces, isOver } = startBody();
  for (const text of ['a\n', 'b\n', 'c\n']) {
    const next = pieces.next();
    await nextTurn();
    clock.advance(SILENCE_MS - 1);
    source.write(text);
    assert.equal(String((await next).value), text);
  }
  assert.equal(isOver(), false);
  const next = assert.rejects(pieces.next(), { statusCode: 408 });
  await nextTurn();
  clock.advance(SILENCE_MS);
  await next;
  assert.equal(isOver(), true);
});

test('bytes that end no line do not extend the time', async () => {
  const { clock, source, pieces, isOver } = startBody();
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
  assert.equal(isOver(), true);
});

test('time in which no piece is requested does not count', async () => {
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

test('the error of a broken body is passed on, and the wait ends', async () => {
  const { clock, source, pieces, isOver } = startBody();
  const next = assert.rejects(pieces.next(), { message: 'gone' });
  await nextTurn();
  source.destroy(new Error('gone'));
  await next;
  assert.deepEqual([clock.waits(), isOver()], [[], false]);
});

test('blank lines do not extend the time, however they are split', async () => {
  const { clock, source, pieces } = startBody();
  for (const text of ['\n', ' \r\n\t', '\n\n', '  ']) {
    const next = pieces.next();
    await nextTurn();
    clock.advance(SILENCE_MS / 4 - 1);
    source.write(text);
    assert.equal(String((await next).value), text);
  }
  const next = assert.rejects(pieces.next(), { statusCode: 408 });
  await nextTurn();
  clock.advance(4);
  await next;
});

test('a line that begins in one piece and ends in another is one', async () => {
  const { clock, source, pieces } = startBody();
  for (const text of ['a', '\n', 'b \n ', ' c', '\n']) {
    const next = pieces.next();
    await nextTurn();
    clock.advance(SILENCE_MS / 2 - 1);
    source.write(text);
    assert.equal(String((await next).value), text);
  }
});

test('the key is checked every few seconds, whether something comes or not, and its refusal ends the body', async () => {
  const { clock, source, pieces, isOver, checks } = startBody();
  const refuse = () => Promise.reject(new Fault('unauthorized', 'Unauthorized'));
  checks.push(() => Promise.reject(new Fault('unavailable', 'database: gone')), refuse);
  for (const text of ['a\n', 'b\n', 'c\n']) {
    const next = pieces.next();
    await nextTurn();
    clock.advance(900);
    source.write(text);
    await next;
  }
  // A database that doesn't answer has not ended the stream.
  assert.deepEqual([checks.length, isOver()], [1, false]);
  clock.advance(2_500);
  await assert.rejects(pieces.next(), { code: 'unauthorized' });
  assert.deepEqual([isOver(), clock.waits()], [true, []]);
});
