import { quickStories } from './stories.ts';
import { testStories } from './suite.ts';

testStories(quickStories('lies'), { concurrency: 1 });
