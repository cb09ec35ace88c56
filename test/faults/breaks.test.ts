import { quickStories } from './stories.ts';
import { testStories } from './suite.ts';

testStories(quickStories('breaks'), { concurrency: 1 });
