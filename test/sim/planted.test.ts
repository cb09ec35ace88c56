import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { findBroken } from './seeds.ts';
import { openStage, type Stage } from './world.ts';

let stage: Stage;
before(async () => {
  stage = await openStage();
});
after(() => stage[Symbol.asyncDispose]());

test('a worker that settles without its lease is found', async () => {
  assert.match((await findBroken(stage, 'no fence'))?.problem ?? '', /settled .* although it had lost lane/);
});

test('a follower that commits upon another tip than the one there is is found', async () => {
  assert.match(
    (await findBroken(stage, 'no compare-and-set'))?.problem ?? '',
    /duplicate key .*block_pkey|is stored on another than its parent/,
  );
});

test('an outcome that is settled for a later delivery than its own is found', async () => {
  assert.match(
    (await findBroken(stage, 'no redelivery fence', 23))?.problem ?? '',
    /^notification \d+ is \["(waiting|processed)",.*should be \["waiting",/,
  );
});

test('a reorg that forgets attempts without an outcome is found', async () => {
  assert.match(
    (await findBroken(stage, 'forgotten attempts', 15))?.problem ?? '',
    /was sent, and does not count as seen/,
  );
});

test('a crash between moving a notification and waking its lane is found, if they are no transaction', async () => {
  assert.match((await findBroken(stage, 'move before wake', 16))?.problem ?? '', /^lane \d+ was forgotten$/);
});
