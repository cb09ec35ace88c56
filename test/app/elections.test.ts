import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createElections } from '../../src/app/elections.ts';
import { createSessionKeeper } from '../../src/store/db/session-keeper.ts';
import { onSampledDatabase } from '../kit/each-database.ts';

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a follower that has given the lock back no longer leads, although its session is open', async () => {
    const sessions = createSessionKeeper(database(), {});
    const elections = createElections(sessions);
    const first = await elections.follower();
    assert.deepEqual([first.isLeader, first.isHeld()], [true, true]);
    await elections.resign();
    assert.deepEqual([first.isHeld(), first.session.lost.aborted], [false, false]);
    const second = await elections.follower();
    assert.deepEqual([second.isLeader, second.isHeld()], [true, true]);
    await sessions.close();
  });
});
