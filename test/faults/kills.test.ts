import { quickStories } from './stories.ts';
import { testStories } from './suite.ts';

testStories(quickStories('kills'), { concurrency: 1 });
