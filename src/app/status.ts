/**
 * The operator's view of the service: the body of /status, the checks of /readyz, and the gauges that are set when metrics are read.
 */
import type { OpsSources } from '../api/context.ts';
import type { StatusBody } from '../api/ops/status-body.ts';
import { never } from '../core/abort.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Step } from '../core/loop.ts';
import type { FollowerReport } from '../store/deployment/processes.ts';
import type { DeploymentReading, Trouble } from './deployment-status.ts';
import { bodyOf, describeProblem } from './describe-status.ts';
import { createFollowingTrouble, type FollowingTrouble } from './following-trouble.ts';
import { createOperatorView, createPublicView } from './public-view.ts';
import { checkReadiness, DATABASE_MS_MAX } from './readiness.ts';
import { createRefresh } from './status-gauges.ts';
import { readAll, type StatusOptions, type Stored, unread } from './stored-status.ts';
import { createTipReader } from './stored-tip.ts';

export type Status = OpsSources & {
  /** Wraps the follower's step: its last Fault is shown until the step works again. */
  watch(step: Step): Step;
  /** The state of following that this process reports to the others; undefined where it doesn't follow. */
  follower(): Promise<Omit<FollowerReport, 'leads'> | undefined>;
  refreshMetrics(): Promise<void>;
};

export function createStatus(options: StatusOptions): Status {
  const { config, database, reports = database, nodes, clock } = options;
  const view = createPublicView(config);
  const hideSecrets = createOperatorView(config);
  const following = createFollowingTrouble(nodes, options.heldUpSince);
  const readTip = createTipReader(reports, clock);
  /** Since when the database can't be read. */
  let unreadSince: Date | undefined;

  /** The stored data, or the reason why it can't be read. */
  async function readStored(now: Date): Promise<Stored | { fault: Trouble }> {
    try {
      const stored = await readAll(options, now);
      unreadSince = undefined;
      return stored;
    } catch (error) {
      if (!(error instanceof Fault)) options.onBug(error);
      unreadSince ??= options.deployment?.silentSince() ?? now;
      return { fault: { state: 'degraded', message: describeUnread(error), since: unreadSince } };
    }
  }

  async function readBody(): Promise<StatusBody> {
    const now = clock.now();
    const read = await readStored(now);
    const stored = 'fault' in read ? unread : read;
    const { tip, deployment } = stored;
    const chainTrouble =
      deployment?.leader === undefined ? following.find(tip?.number) : deployment.leader.trouble;
    const sideTrouble = stored.writeFailures.length === 0 ? deployment?.sideTrouble : undefined;
    const trouble = chainTrouble ?? ('fault' in read ? read.fault : (deployment?.trouble ?? sideTrouble));
    return bodyOf(options, { stored, trouble, now });
  }

  return {
    watch: (step) => async (signal) => {
      try {
        const outcome = await step(signal);
        following.noteStep(undefined, clock.now());
        return outcome;
      } catch (error) {
        if (error instanceof Fault && !signal.aborted) following.noteStep(error, clock.now());
        throw error;
      }
    },
    async follower() {
      if (nodes === undefined) return undefined;
      const tip = await readTip();
      const trouble = following.find(tip?.number);
      const problem = trouble && { message: view.text(trouble.message), since: trouble.since };
      return { state: trouble?.state ?? 'ok', head: nodes.headNumber(), problem };
    },
    checks: async () => view.checks(await checkReadiness(options)),
    async details() {
      const reading = await options.deployment?.read(clock.now());
      return reading?.details ?? { processes: [], late_watchers: [] };
    },
    async deployment() {
      const reading = options.deployment?.read(clock.now()).catch(() => undefined);
      const read = reading && (await firstOrLate({ clock, signal: never }, [reading], DATABASE_MS_MAX));
      if (read === undefined || read === 'late') return undefined;
      const { state, message } = summaryOf(read, following);
      return { state, message: message === undefined ? null : view.text(message) };
    },
    status: async () => view.status(await readBody()),
    fullStatus: async () => hideSecrets(await readBody()),
    refreshMetrics: createRefresh(options, following),
  };
}

const describeUnread = (error: unknown): string =>
  error instanceof Fault
    ? `${messageOf(error)}. /status can't show what is stored: check that the database runs, and check database.url`
    : "a bug: /status can't show what is stored. The log of this process has the error (status.bug); please report it";

/** The deployment's state in /readyz: the most important problem decides it. */
function summaryOf(
  read: DeploymentReading,
  following: FollowingTrouble,
): { state: 'ok' | Trouble['state']; message: string | undefined } {
  const trouble =
    (read.leader === undefined ? following.find(undefined) : read.leader.trouble) ?? read.trouble;
  if (trouble !== undefined) return trouble;
  const [failure] = read.writeFailures;
  const problem = failure && describeProblem(undefined, [failure]);
  if (problem) return { state: 'degraded', message: problem.message };
  return read.sideTrouble ?? { state: 'ok', message: undefined };
}
