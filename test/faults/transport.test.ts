import { quickStories } from './stories.ts';
import { testStories } from './suite.ts';

testStories(quickStories('transport'), { concurrency: 1 });
