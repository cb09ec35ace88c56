/**
 * The stories as tests. Each must leave a row without problems. A run of the whole suite takes a sample of them.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { sampleOf } from '../kit/sample.ts';
import { createTeller, problemsOf, type Story } from './story.ts';

export function testStories(stories: readonly Story[], options: { concurrency: number }): void {
  describe('nothing is lost, doubled or made up by', options, () => {
    const teller = createTeller();
    after(() => teller[Symbol.asyncDispose]());
    for (const story of sampleOf(stories, { shares: 5 })) {
      test(story.name, async () => {
        const row = await teller.tell(story);
        assert.deepEqual(problemsOf(row), [], JSON.stringify(row));
      });
    }
  });
}
