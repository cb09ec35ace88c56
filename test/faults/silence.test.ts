import { slowStories } from './stories.ts';
import { testStories } from './suite.ts';

testStories(slowStories, { concurrency: slowStories.length });
