import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFollowingTrouble } from '../../src/app/following-trouble.ts';
import { Fault } from '../../src/core/fault.ts';
import { later, noon } from '../kit/chain-story.ts';

const SECOND = 1_000;
const unknown = new Fault('inconsistent', 'too few nodes say what is final');
const createTrouble = () =>
  createFollowingTrouble(undefined, {
    heldUpSince: () => undefined,
    isEmbedded: false,
    silentTracer: () => undefined,
  });

test('a Fault of one step is shown until a step works', () => {
  const trouble = createTrouble();
  trouble.noteStep(unknown, noon);
  assert.deepEqual(trouble.find(1), { state: 'holding', message: unknown.message, since: noon });
  trouble.noteStep(undefined, later(SECOND));
  assert.equal(trouble.find(1), undefined);
});

test('a Fault that comes again between steps that work is shown from its first time until it stays away', () => {
  const trouble = createTrouble();
  for (let second = 0; second < 60; second += 1) {
    trouble.noteStep(second % 10 === 0 ? unknown : undefined, later(second * SECOND));
    const { state, since } = trouble.find(1) ?? {};
    if (second >= 10)
      assert.deepEqual([state, since], [second % 10 === 0 ? 'holding' : 'degraded', noon], String(second));
  }
  trouble.noteStep(undefined, later(79 * SECOND));
  assert.notEqual(trouble.find(1), undefined);
  trouble.noteStep(undefined, later(80 * SECOND));
  assert.equal(trouble.find(1), undefined);
  trouble.noteStep(unknown, later(200 * SECOND));
  assert.deepEqual(trouble.find(1)?.since, later(200 * SECOND));
});

test('another Fault between two of a recurring one is neither of its time nor shown after it', () => {
  const trouble = createTrouble();
  for (const second of [0, 10]) {
    trouble.noteStep(unknown, later(second * SECOND));
    trouble.noteStep(undefined, later((second + 1) * SECOND));
  }
  assert.notEqual(trouble.find(1), undefined);
  trouble.noteStep(new Fault('unavailable', 'no node answers'), later(12 * SECOND));
  assert.deepEqual(trouble.find(1)?.message, 'no node answers');
  trouble.noteStep(undefined, later(13 * SECOND));
  assert.equal(trouble.find(1), undefined);
});

test('a recurring Fault is not shown for longer because the clock was set back', () => {
  const trouble = createTrouble();
  for (const second of [0, 10]) {
    trouble.noteStep(unknown, later(second * SECOND));
    trouble.noteStep(undefined, later((second + 1) * SECOND));
  }
  trouble.noteStep(undefined, later(-3_600 * SECOND));
  assert.equal(trouble.find(1), undefined);
});

test('another Fault soon after one that is over is a new one', () => {
  const trouble = createTrouble();
  trouble.noteStep(unknown, noon);
  trouble.noteStep(undefined, later(SECOND));
  trouble.noteStep(new Fault('unavailable', 'no node answers'), later(2 * SECOND));
  assert.deepEqual(trouble.find(1)?.since, later(2 * SECOND));
  trouble.noteStep(undefined, later(3 * SECOND));
  assert.equal(trouble.find(1), undefined);
});
