/**
 * The operator's view of the service: the body of /status, the checks of /readyz, and the gauges that are set when metrics are read.
 */
import type { OpsSources } from '../api/context.ts';
import type { StatusBody } from '../api/ops/status-body.ts';
import { ageSeconds } from '../core/age.ts';
import { Fault, messageOf } from '../core/fault.ts';
import { createLogLimit } from '../core/log-limit.ts';
import type { Step } from '../core/loop.ts';
import { shareReading } from '../core/shared-reading.ts';
import { findTipTimes } from '../store/blocks/blocks.ts';
import type { FollowerReport } from '../store/deployment/processes.ts';
import { listKekIds } from '../store/watchers/api-keys.ts';
import { BUG_LOG_MS } from './background-loops.ts';
import type { DeploymentReading, Trouble } from './deployment-status.ts';
import { bodyOf, describeProblem } from './describe-status.ts';
import { createFollowingTrouble } from './following-trouble.ts';
import { createLastRead } from './last-read.ts';
import { createOperatorView, createPublicView } from './public-view.ts';
import { checkReadiness } from './readiness.ts';
import { createStandstill } from './standstill.ts';
import { createRefresh } from './status-gauges.ts';
import { readStored, type StatusOptions, type Stored } from './stored-status.ts';

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
  const { noteBug, unreadTrouble } = createUnreadTrouble(options);
  const hideSecrets = createOperatorView(config);
  const following = createFollowingTrouble(nodes, {
    heldUpSince: options.heldUpSince ?? (() => undefined),
    isEmbedded: database.kind === 'embedded',
    silentTracer: () => options.agreement?.().silentTracer,
  });
  // A tip that was read earlier is never above the present one.
  const readTip = createLastRead(clock, () => findTipTimes(reports), noteBug);
  const read = shareReading((now) => readStored(options, now), { clock, keepMs: 0 });
  const readChecks = createChecks(options, noteBug);
  const standstill = createStandstill(reports, { clock, onBug: noteBug });

  /** The trouble of following the chain here. */
  async function findOwn(tip: Awaited<ReturnType<typeof readTip>>): Promise<Trouble | undefined> {
    return following.find(tip?.number) ?? standstill.find(tip, presentHead(nodes));
  }

  async function readBody(): Promise<StatusBody> {
    const now = clock.now();
    const stored = await read(now);
    const { tip, deployment, hasUnknownFailures } = stored;
    const chainTrouble =
      deployment?.leader === undefined ? await findOwn(tip ?? (await readTip())) : deployment.leader.trouble;
    const hasWriteFailures = stored.writeFailures.length > 0;
    const unreadable = unreadTrouble(stored, now);
    const unread = hasWriteFailures && !stored.isUnreadable ? undefined : unreadable;
    const rest = deployment?.trouble;
    const sideTrouble = hasWriteFailures ? undefined : deployment?.sideTrouble;
    const trouble = chainTrouble ?? (hasUnknownFailures ? (unread ?? rest) : (rest ?? unread)) ?? sideTrouble;
    return bodyOf(options, { stored, trouble, now });
  }

  const { summarize, findState } = createSummary(options, async () => findOwn(await readTip()));

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
      const trouble = await findOwn(await readTip());
      const problem = trouble && { message: view.text(trouble.message), since: trouble.since };
      return { state: trouble?.state ?? 'ok', head: nodes.headNumber(), problem };
    },
    checks: async () => view.checks(await readChecks(clock.now())),
    async details() {
      const read = await options.deployment?.read(clock.now());
      if (read === undefined) return { processes: [], late_watchers: [] };
      if (read.details === undefined) throw read.errors[0];
      return read.details;
    },
    async deployment() {
      const summary = await summarize();
      return summary && { ...summary, message: summary.message === null ? null : view.text(summary.message) };
    },
    status: async () => view.status(await readBody()),
    fullStatus: async () => hideSecrets(await readBody()),
    refreshMetrics: createRefresh(options, {
      findOwn: () => findOwnAndSetLag(options, { readTip, findOwn }),
      findState,
    }),
  };
}

/** The newest block that the nodes name now. Undefined while too few have answered lately, as right after a suspension of the process. */
function presentHead(nodes: StatusOptions['nodes']): number | undefined {
  const quorum = nodes?.quorum();
  return quorum !== undefined && quorum.votes >= quorum.needed ? nodes?.headNumber() : undefined;
}

function createChecks(options: StatusOptions, noteBug: (error: unknown) => void) {
  const { probes: database = options.database, clock } = options;
  const readKekIds = createLastRead(clock, () => listKekIds(database), noteBug);
  return shareReading(() => checkReadiness({ ...options, database, readKekIds }), { clock, keepMs: 0 });
}

type Tip = Awaited<ReturnType<typeof findTipTimes>>;

async function findOwnAndSetLag(
  options: StatusOptions,
  { readTip, findOwn }: { readTip(): Promise<Tip>; findOwn(tip: Tip): Promise<Trouble | undefined> },
): Promise<Trouble | undefined> {
  const head = options.nodes?.headNumber();
  const tip = await readTip();
  const trouble = await findOwn(tip);
  if (trouble !== undefined || options.heldUpSince?.() !== undefined) setLag(options, head, tip);
  return trouble;
}

/** Sets the gauges of the head and the lag. The follower sets the lag only when it has stored a block. */
function setLag({ metrics, clock }: StatusOptions, head: number | undefined, tip: Tip): void {
  if (head === undefined) return;
  metrics.chainBlockNumber.set({ stage: 'head' }, head);
  if (tip !== undefined && tip.number < head)
    metrics.chainLagSeconds.set(ageSeconds(tip.minedAt, clock.now()));
}

/** That something can't be read from the database. */
function createUnreadTrouble({ clock, deployment, onBug }: StatusOptions) {
  const limitBugs = createLogLimit(clock, BUG_LOG_MS);
  /** Since when the database can't be read. */
  let unreadSince: Date | undefined;

  function noteBug(error: unknown): void {
    const others = limitBugs();
    if (others !== undefined) onBug(error, others);
  }

  return {
    noteBug,
    unreadTrouble({ errors, isUnreadable }: Stored, now: Date): Trouble | undefined {
      const bug = errors.find((error) => !(error instanceof Fault));
      if (bug !== undefined) noteBug(bug);
      const error = bug ?? errors[0];
      unreadSince = error === undefined ? undefined : (unreadSince ?? deployment?.silentSince() ?? now);
      return (
        unreadSince && { state: 'degraded', message: describeUnread(error, isUnreadable), since: unreadSince }
      );
    },
  };
}

const HELD_UP = /no answer within|timeout/;

function describeUnread(error: unknown, isUnreadable: boolean): string {
  if (!(error instanceof Fault))
    return "a bug: /status can't show all that is stored. The log of this process has the error (status.bug); please report it";
  const message = messageOf(error);
  const cause = HELD_UP.test(message) ? ': a lock on a table, or a slow statement, may hold it up' : '';
  const advice = isUnreadable
    ? "/status can't show what is stored: check that the database runs, and check database.url"
    : `/status has null for what it could not read${cause}`;
  return `${message}. ${advice}`;
}

type Summary = { state: 'ok' | Trouble['state']; message: string | undefined };

/** The state of all processes together, without what only /status reads: prices, pairs, and counts of notifications. */
function createSummary(
  { deployment, clock, writes }: StatusOptions,
  findOwn: () => Promise<Trouble | undefined>,
) {
  /** The most important problem decides it. `findOwn` is the trouble of following here, where no other process leads. */
  async function summaryOf(read: DeploymentReading): Promise<Summary> {
    const trouble = (read.leader === undefined ? await findOwn() : read.leader.trouble) ?? read.trouble;
    if (trouble !== undefined) return trouble;
    const problem = describeProblem(undefined, [...(await writes.failures()), ...read.writeFailures]);
    if (problem !== null) return { state: 'degraded', message: problem.message };
    const error = read.errors.find((one) => !(one instanceof Fault)) ?? read.errors[0];
    if (error !== undefined) return { state: 'degraded', message: describeUnread(error, false) };
    return read.sideTrouble ?? { state: 'ok', message: undefined };
  }

  return {
    /** Undefined while the processes can't be read. */
    async summarize(): Promise<{ state: Summary['state']; message: string | null } | undefined> {
      const read = await deployment?.read(clock.now());
      if (read === undefined || read.body.processes === null) return undefined;
      const { state, message } = await summaryOf(read);
      return { state, message: message ?? null };
    },
    async findState(): Promise<Summary['state']> {
      const read = await deployment?.read(clock.now());
      if (read !== undefined) return (await summaryOf(read)).state;
      return (await findOwn())?.state ?? ((await writes.failures()).length > 0 ? 'degraded' : 'ok');
    },
  };
}
