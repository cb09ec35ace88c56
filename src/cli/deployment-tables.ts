/**
 * The deployment in `chainbell status`: its processes, failing receivers and late webhooks.
 */
import type { StatusBody } from '../api/status-body.ts';
import { table } from './table.ts';

/** Lines for the summary. */
export function deploymentRows({ problem, missing, receivers, late }: StatusBody): string[][] {
  const others = missing.filter(({ message }) => message !== problem?.message);
  return [
    ...others.map(({ role, message, since }) => ['missing', `${role}: ${message} (since ${since})`]),
    ['receivers', describeReceivers(receivers)],
    ...(late === null || late.watchers === 0
      ? []
      : [
          [
            'late',
            `webhooks of ${count(late.watchers, 'watcher')} go out late, the oldest by ${Math.round(late.seconds)} s: they have more due than their share allows: chainbell receivers --late`,
          ],
        ]),
  ];
}

function describeReceivers(receivers: StatusBody['receivers']): string {
  if (receivers === null) return 'unknown';
  if (receivers.failing === 0) return 'none fails';
  return `${receivers.failing} of ${count(receivers.watchers, 'watcher')} ${receivers.failing === 1 ? 'fails' : 'fail'}, the longest since ${receivers.since}: chainbell receivers --failing`;
}

export function processTables({ processes }: StatusBody): string[] {
  return [
    table([
      ['PROCESS', 'ROLES', 'STATE', 'VERSION', 'STARTED', 'LAST SEEN', 'FOLLOWING'],
      ...processes.map(({ id, roles, state, version, started_at, seen_at, follower }) => [
        ...[id, roles.join(','), state, version, started_at, seen_at],
        state === 'running' ? describeFollower(follower) : '',
      ]),
    ]),
  ];
}

function describeFollower(follower: StatusBody['processes'][number]['follower']): string {
  if (follower === null) return '';
  const { leads, state, head, problem } = follower;
  return [
    leads ? 'leads' : 'stands by',
    `head ${head ?? 'unknown'}`,
    ...(state === 'ok' ? [] : [problem === null ? state : `${state}: ${problem.message}`]),
  ].join(', ');
}

const count = (number: number, noun: string) => `${number} ${noun}${number === 1 ? '' : 's'}`;
