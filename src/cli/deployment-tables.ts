/**
 * The deployment in `chainbell status`: its processes, failing receivers and late webhooks.
 */
import type { StatusBody } from '../api/ops/status-body.ts';
import { counted } from '../core/plural.ts';
import { table } from './table.ts';

/** Rows for the summary table: label and text. */
export function deploymentRows(status: StatusBody): string[][] {
  const { problem, missing, receivers, late } = status;
  const { watchers_over_pending_limit: overLimit, orphaned } = status;
  const others = (missing ?? []).filter(({ message }) => message !== problem?.message);
  return [
    ...others.map(({ role, message, since }) => ['missing', `${role}: ${message} (since ${since})`]),
    ['receivers', describeReceivers(receivers)],
    ...(late === null || late.watchers === 0
      ? []
      : [
          [
            'late',
            `${counted(late.watchers, 'watcher')} ${late.watchers === 1 ? 'has' : 'have'} late webhooks, the oldest by ${Math.round(late.seconds)} s${lateCause(status)}. To list them: chainbell receivers --late`,
          ],
        ]),
    ...(overLimit === null || overLimit === 0
      ? []
      : [
          [
            'pending',
            `${counted(overLimit, 'watcher')} ${overLimit === 1 ? 'has' : 'have'} more pending notifications than limits.pendingNotifications. The log event delivery.pending_alarm names them`,
          ],
        ]),
    ...(orphaned === null || orphaned.count === 0
      ? []
      : [
          [
            'orphaned',
            `${counted(orphaned.count, 'acknowledged transfer')} ${orphaned.count === 1 ? 'was' : 'were'} orphaned without a removal notice, the first at ${orphaned.since}. The delivery log lists them`,
          ],
        ]),
  ];
}

/** Empty while something else may be the cause. */
function lateCause({ missing, failing_work: failing, problem }: StatusBody): string {
  const isShareAlone = problem === null && missing?.length === 0 && failing !== null && failing.length === 0;
  return isShareAlone ? ', because more are due than their share of delivery allows' : '';
}

function describeReceivers(receivers: StatusBody['receivers']): string {
  if (receivers === null) return 'unknown';
  if (receivers.failing === 0) return 'none is failing';
  return `${counted(receivers.failing, 'receiver')} of ${counted(receivers.watchers, 'watcher')} ${receivers.failing === 1 ? 'is' : 'are'} failing, the longest since ${receivers.since}. To list them: chainbell receivers --failing`;
}

type Process = NonNullable<StatusBody['processes']>[number];

/** `placeOf`: where a process runs, in cells under `placeHeadings`. */
export function processTable<P extends Process>(
  processes: readonly P[],
  placeHeadings: readonly string[] = [],
  placeOf: (one: P) => readonly string[] = () => [],
): string {
  return table([
    ['PROCESS', 'ROLES', 'STATE', 'VERSION', ...placeHeadings, 'STARTED', 'LAST SEEN', 'FOLLOWING'],
    ...processes.map((one) => [
      ...[one.id, one.roles.join(','), one.state, one.version, ...placeOf(one)],
      ...[one.started_at, one.seen_at],
      one.state === 'running' ? describeFollower(one.follower) : describeError(one.error),
    ]),
  ]);
}

const describeError = (error: string | null) => (error === null ? '' : `the start failed: ${error}`);

function describeFollower(follower: Process['follower']): string {
  if (follower === null) return '';
  const { leads, state, head, problem } = follower;
  return [
    leads ? 'leads' : 'on standby',
    `head ${head ?? 'unknown'}`,
    ...(state === 'ok' ? [] : [problem === null ? state : `${state}: ${problem.message}`]),
  ].join(', ');
}
