import { quickStories } from './stories.ts';
import { testStories } from './suite.ts';

testStories(quickStories('quorum'), { concurrency: 1 });
