import { quickStories } from './stories.ts';
import { testStories } from './suite.ts';

testStories(quickStories('reorgs'), { concurrency: 1 });
