/**
 * Watchers that try to take delivery capacity from others. The attack runs against the whole service in a normal process. Each
 * run compares a phase without the attack to one with it. Only ratios count, so the result holds on any machine.
 */
import assert from 'node:assert/strict';
import { runScenario, type Scenario, type Size } from '../../bench/deliver/fairness/scenarios.ts';
import { ROOT } from '../../bench/deliver/fairness/stage.ts';
import { figuresOf, shareSent } from '../../bench/deliver/fairness/verdict.ts';
import type { Abuse } from './abuse.ts';

/** 600 attempts a second that last 10 s each need six times as many slots as the 1,024 that exist. */
const SIZE: Size = {
  everyMs: 1_000,
  baselineBlocks: 10,
  attackBlocks: 15,
  friendlyBlocks: 6,
  hosts: 600,
  rows: 20_000,
};
/**
 * Looser than the requirements for a quiet machine (bench/deliver/fairness/verdict.ts), because tests run beside others.
 * Without fairness, most of these ratios were 20 to 140 on two busy cores.
 */
const RATIO_MAX = 5;
/** Attempts in normal slots that start to hang keep those slots until they are handed over. */
const TURNING_RATIO_MAX = 10;
/** Compares the same rows in each block, with receivers that respond and receivers that hang. */
const LAG_RATIO_MAX = 3;
const MEMORY_RATIO_MAX = 1.5;
const OWN_SPEED_MIN = 0.8;

const fair = (scenario: Scenario, name: string): Abuse => ({
  name,
  // Ratios mean little on a machine that also runs other tests.
  isLong: true,
  async commit() {
    const options = { service: ROOT, database: 'postgres', isDurable: false, size: SIZE } as const;
    const phases = await runScenario(scenario, options);
    const baseline = figuresOf(phases, 'baseline');
    const attack = figuresOf(phases, 'attack');
    const isTurning = scenario === 'D' || scenario === 'E';
    const ratioMax = isTurning ? TURNING_RATIO_MAX : RATIO_MAX;
    const ratio = (of: number | undefined, to: number | undefined) => (of ?? Number.NaN) / (to ?? Number.NaN);
    const seen: string[] = [];
    const problems: string[] = [];
    const check = (what: string, value: number, isMet: boolean) => {
      seen.push(`${what} ${value.toFixed(2)}`);
      if (!isMet) problems.push(`${what} is ${value.toFixed(2)}`);
    };
    const atMost = (what: string, value: number, limit: number) => check(what, value, value <= limit);
    const all = (what: string, value: number) => check(what, value, value === 1);

    assert.equal(shareSent(baseline), 1, 'webhooks are missing without an attack');
    all('share of healthy webhooks sent', shareSent(attack));
    all('share of new watchers with a webhook', ratio(attack.newcomersSent, attack.newcomers));
    atMost('healthy p99 by baseline', ratio(attack.rowToPostP99Ms, baseline.rowToPostP99Ms), ratioMax);
    atMost(
      'slowest new watcher by baseline p99',
      ratio(attack.newcomerFirstMaxMs, baseline.rowToPostP99Ms),
      ratioMax,
    );
    atMost('API GET p99 by baseline', ratio(attack.apiGetP99Ms, baseline.apiGetP99Ms), ratioMax);
    atMost('API POST p99 by baseline', ratio(attack.apiPostP99Ms, baseline.apiPostP99Ms), ratioMax);
    atMost('memory by baseline', ratio(attack.residentPeakMiB, baseline.residentPeakMiB), MEMORY_RATIO_MAX);
    if (isTurning) {
      const friendly = figuresOf(phases, 'friendly');
      const lag = ratio(attack.followerLagP50Ms, friendly.followerLagP50Ms);
      atMost('follower lag by that before the turn', lag, LAG_RATIO_MAX);
    }
    if (scenario === 'C') {
      const speed = ratio(attack.hostilePerSecond, figuresOf(phases, 'alone').hostilePerSecond);
      check('own speed by that alone', speed, speed >= OWN_SPEED_MIN);
    }
    assert(problems.length === 0, `${scenario}: ${problems.join('; ')}`);
    return seen.join('; ');
  },
});

export const fairnessAbuses: readonly Abuse[] = [
  fair('A', 'one watcher with 600 hosts that never answer delays no other watcher'),
  fair('B', '100 watchers with hosts that never answer delay no other watcher'),
  fair('C', 'one fast watcher with a backlog delays no other watcher and keeps its speed'),
];

export const turningAbuses: readonly Abuse[] = [
  fair('D', 'one watcher with 600 hosts that answer at first and then hang delays no other watcher'),
  fair('E', '100 watchers with hosts that answer at first and then hang delay no other watcher'),
];
