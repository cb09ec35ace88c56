import { testAbuses } from './abuse.ts';
import { fairnessAbuses } from './fairness.ts';

testAbuses(fairnessAbuses);
