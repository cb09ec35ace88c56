import { quickStories } from './stories.ts';
import { testStories } from './suite.ts';

testStories(quickStories('followers'), { concurrency: 1 });
