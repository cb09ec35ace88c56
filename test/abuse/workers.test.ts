import { testAbuses } from './abuse.ts';
import { workerAbuses } from './workers.ts';

testAbuses(workerAbuses, { shares: 2 });
