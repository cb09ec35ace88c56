import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { sampleOf } from '../kit/sample.ts';
import { type Attack, tellAttack } from './fairness.ts';
import { openStage, type Stage } from './world.ts';

/** More hosts than slots for hung attempts. */
const HOSTS = 800;
const one = { watchers: 1, hosts: HOSTS, records: HOSTS } as const;
const crowd = { ...one, watchers: 100 } as const;
const attacks: readonly (Attack & { name: string })[] = [
  { ...one, manner: 'hangs', name: 'A: one watcher whose hosts never answer' },
  { ...crowd, manner: 'hangs', name: 'B: 100 watchers whose hosts never answer' },
  { ...one, hosts: 20, manner: 'answers', name: 'C: one fast watcher with 800 notifications in each block' },
  { ...one, manner: 'turns', name: 'D: as A, but the hosts answer at first' },
  { ...crowd, manner: 'turns', name: 'E: as B, but the hosts answer at first' },
  { ...one, manner: 'hangs', hasStoppedWorker: true, name: 'A, and a second worker that is stopped' },
];
const RATIO_MAX = 2;
const NEWCOMER_MS_MAX = 100;
const OPEN_MAX = 1_536;
const HEALTHY = 20;
const BLOCKS = 7;
const NEWCOMERS = 3;

let stage: Stage;
before(async () => {
  stage = await openStage();
});
after(() => stage[Symbol.asyncDispose]());

const p99 = (values: readonly number[]) =>
  values.toSorted((some, other) => some - other)[Math.ceil(0.99 * values.length) - 1] ?? Number.NaN;

for (const { name, ...attack } of sampleOf(attacks, { shares: attacks.length }))
  test(`others hardly notice ${name}`, async () => {
    const { quiet, attacked, newcomers, openMax, surplusMax } = await tellAttack(stage, attack);
    assert.deepEqual([attacked.length, newcomers.length], [HEALTHY * BLOCKS, NEWCOMERS]);
    assert.ok(p99(attacked) <= RATIO_MAX * p99(quiet), `${p99(attacked)} ms instead of ${p99(quiet)} ms`);
    assert.ok(Math.max(...newcomers) <= NEWCOMER_MS_MAX, `${newcomers.join(', ')} ms for new watchers`);
    assert.ok(openMax <= OPEN_MAX + HEALTHY + NEWCOMERS + attack.watchers, `${openMax} attempts at once`);
    assert.ok(surplusMax <= 0, `${surplusMax} lanes too many`);
  });
