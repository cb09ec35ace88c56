import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { gather } from '../../../src/chain/nodes/ask-several.ts';
import { never } from '../../../src/core/abort.ts';
import { createTestClock } from '../../kit/clock.ts';

/** Asks voters that answer when told to. `at` moves the clock. */
function ask(voters: readonly string[], needed: number) {
  const clock = createTestClock();
  const pending = new Map(voters.map((voter) => [voter, Promise.withResolvers<string>()]));
  const gathered = gather({
    ...{ clock, signal: never, voters, ms: 1_000 },
    ask: async (voter) => (await pending.get(voter)?.promise) ?? '',
    atLeast: { ms: 3_000, isMet: (answers) => answers.size >= needed },
  });
  return {
    names: async () => [...(await gathered).keys()],
    answer: (voter: string) => pending.get(voter)?.resolve(voter),
    async at(ms: number) {
      clock.advance(ms - clock.steadyMs());
      await setImmediate();
    },
  };
}

test('answers that are needed are waited for longer, and further ones are not', async () => {
  const asked = ask(['slow', 'slower', 'hanging'], 2);
  await asked.at(500);
  asked.answer('slow');
  await asked.at(1_500);
  asked.answer('slower');
  assert.deepEqual(await asked.names(), ['slow', 'slower']);
});

test('once the needed answers are there, others are waited for no longer than usual', async () => {
  const asked = ask(['quick', 'hanging'], 1);
  asked.answer('quick');
  await asked.at(1_000);
  assert.deepEqual(await asked.names(), ['quick']);
});

test('needed answers that do not come are waited for until the longer time is over', async () => {
  const asked = ask(['hanging'], 1);
  await asked.at(1_000);
  await asked.at(3_000);
  assert.deepEqual(await asked.names(), []);
});
