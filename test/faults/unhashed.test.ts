import { quickStories } from './stories.ts';
import { testStories } from './suite.ts';

testStories(quickStories('unhashed'), { concurrency: 1 });
