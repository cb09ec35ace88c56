import { testAbuses } from './abuse.ts';
import { turningAbuses } from './fairness.ts';

testAbuses(turningAbuses);
