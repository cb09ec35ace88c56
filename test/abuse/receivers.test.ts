import { testAbuses } from './abuse.ts';
import { receiverAbuses } from './receivers.ts';

testAbuses(receiverAbuses, { shares: 3 });
