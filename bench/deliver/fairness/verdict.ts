/**
 * Checks the phases of a fairness scenario against the requirements, which limit what an attack may cost the others.
 */
import type { Figures } from '../../repeats.ts';
import type { PhaseReport } from './measure.ts';
import type { Scenario } from './scenarios.ts';

/** `seen` must be at most `limit`, or at least `limit` where `isFloor` is set. */
type Requirement = { name: string; seen: number; limit: number; isFloor?: boolean; isMet: boolean };

const RATIO_MAX = 2;
const TURNED_MS_MAX = 100;
const NEWCOMER_MS_MAX = 100;
const GROWTH_MIB_MAX = 60;
const OWN_SPEED_MIN = 0.95;

export function judge(scenario: Scenario, phases: readonly PhaseReport[]): Requirement[] {
  const baseline = figuresOf(phases, 'baseline');
  const attack = figuresOf(phases, 'attack');
  const ratio = (name: string) => (attack[name] ?? Number.NaN) / (baseline[name] ?? Number.NaN);
  const atMost = (name: string, seen: number, limit: number) => requirement({ name, seen, limit });
  const isTurning = scenario === 'D' || scenario === 'E';
  const requirements = [
    requirement({ name: 'healthy webhooks sent, share', seen: shareSent(attack), limit: 1, isFloor: true }),
    isTurning
      ? atMost('healthy p99, ms', attack.rowToPostP99Ms ?? Number.NaN, TURNED_MS_MAX)
      : atMost('healthy p99 ÷ baseline', ratio('rowToPostP99Ms'), RATIO_MAX),
    atMost('API GET p99 ÷ baseline', ratio('apiGetP99Ms'), RATIO_MAX),
    atMost('API POST p99 ÷ baseline', ratio('apiPostP99Ms'), RATIO_MAX),
    atMost('follower lag p99 ÷ baseline', ratio('followerLagP99Ms'), RATIO_MAX),
    atMost(
      'memory above baseline, MiB',
      (attack.residentPeakMiB ?? Number.NaN) - (baseline.residentPeakMiB ?? Number.NaN),
      GROWTH_MIB_MAX,
    ),
    requirement({
      name: 'new watchers with a webhook, share',
      seen: (attack.newcomersSent ?? Number.NaN) / (attack.newcomers ?? Number.NaN),
      limit: 1,
      isFloor: true,
    }),
    atMost(
      'first webhook of a new watcher, max ms',
      attack.newcomerFirstMaxMs ?? Number.NaN,
      NEWCOMER_MS_MAX,
    ),
  ];
  if (scenario !== 'C') return requirements;
  const seen =
    (attack.hostilePerSecond ?? Number.NaN) / (figuresOf(phases, 'alone').hostilePerSecond ?? Number.NaN);
  return [
    ...requirements,
    requirement({ name: 'own speed ÷ alone', seen, limit: OWN_SPEED_MIN, isFloor: true }),
  ];
}

/** @throws Error when this phase does not exist. */
export function figuresOf(phases: readonly PhaseReport[], name: string): Figures {
  const phase = phases.find((one) => one.name === name);
  if (phase === undefined) throw new Error(`there is no phase ${name}`);
  return phase.figures;
}

export function shareSent({ sent = 0, expected = Number.NaN }: Figures): number {
  return sent / expected;
}

/** A missing figure does not meet the requirement. */
function requirement({ name, seen, limit, isFloor = false }: Omit<Requirement, 'isMet'>): Requirement {
  const rounded = Number(seen.toFixed(2));
  return { name, seen: rounded, limit, isFloor, isMet: isFloor ? seen >= limit : seen <= limit };
}
