import { testSeeds } from './seeds.ts';

testSeeds(2);
