import assert from 'node:assert/strict';
import { test } from 'node:test';
import { commitBlocks, findTip, insertChain } from '../../src/store/blocks/blocks.ts';
import { headerOf, noon } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { onSampledDatabase } from '../kit/each-database.ts';
import { followMadeUp } from '../kit/follower.ts';

const { signal } = new AbortController();

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a follower that takes over enforces the observed checks of the one before, from its first block on', async () => {
    const events: string[] = [];
    let leads = false;
    const at = (number: number) => {
      events.push(`block ${number}`);
      return headerOf(number);
    };
    const follower = followMadeUp(
      database(),
      { head: () => headerOf(3), at },
      {
        ...{ clock: createTestClock(), finalityDepth: 100, isLeader: async () => leads },
        checks: {
          ...{ enforcedChecks: () => [], observedTypes: () => [] },
          enforce: (names, types) => void events.push(`enforce ${names.join()} ${types.join()}`),
        },
      },
    );
    // It stands by while another follower observes checks and commits.
    await follower.step(signal);
    await insertChain(database(), 1, headerOf(0).hash);
    const committed = await commitBlocks(database(), {
      ...{ expectedTip: undefined, blocks: [{ header: headerOf(1), proved: true, transfers: [] }] },
      ...{ confirmations: 0, finalizedNumber: 0, enforcedChecks: ['receiptsRoot'], now: noon },
      unprovedTypes: ['0x7e'],
    });
    assert.equal(committed.outcome, 'committed');
    assert.equal(events.length, 0);

    leads = true;
    for (let steps = 0; steps < 2; steps += 1) await follower.step(signal);
    assert.equal((await findTip(database()))?.number, 3);
    assert.deepEqual(events.slice(0, 2), ['enforce receiptsRoot 0x7e', 'block 2']);
    assert.equal(events.filter((event) => event.startsWith('enforce')).length, 1);

    // It loses the lead for a while.
    leads = false;
    await follower.step(signal);
    leads = true;
    await follower.step(signal);
    assert.equal(events.filter((event) => event.startsWith('enforce')).length, 2);
  });
});
