import { testAbuses } from './abuse.ts';
import { clockAbuses } from './clocks.ts';

testAbuses(clockAbuses, { shares: 3 });
