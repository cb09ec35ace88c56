import { testAbuses } from './abuse.ts';
import { guardAbuses } from './guard.ts';

testAbuses(guardAbuses, { shares: 1 });
