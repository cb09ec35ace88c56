/**
 * Shares the one connection of the embedded database between the parts of the process, fairly by the time that each has used
 * (start-time fair queueing), and within a part between the accounts that it works for. However much work one of them has, another
 * one waits for little more than the statement under way.
 */
import { setImmediate as pause } from 'node:timers/promises';
import { presentAccount } from '../../core/account.ts';
import { Fault } from '../../core/fault.ts';
import { type Share, shares } from './db.ts';

type FairQueue = {
  /**
   * Runs `work` when it is the turn of the share, and in it of the present account, first in first out within the account.
   * @throws Fault `unavailable` if too many wait.
   */
  run<T>(share: Share, work: () => Promise<T>): Promise<T>;
  /** Resolves when nothing is running or waiting. */
  idle(): Promise<void>;
};

/**
 * Limits of waiting work per share. For the API, more requests would be late by seconds. For delivery, all lanes that a process
 * may lease can read at once. The other shares have a handful of loops or commands.
 */
const WAITING_MAX: Record<Share, number> = {
  ...{ follower: 100, heartbeat: 100, settle: 100, delivery: 5_000, api: 1_000, operator: 100 },
};
/** One account may have this part of them. The work of a share that is for no account has no such limit. */
const ACCOUNT_PART = 1 / 4;
/** However many wait for others, an account may have this many, which `/status` or a few requests need at once. */
const ACCOUNT_MIN = 50;
/** With those, this many times the limit may wait. It bounds the memory if hundreds of watchers fill their places. */
const TIMES_MAX = 10;
/** An operator's millisecond costs this many of another share's, so that the service's own work goes first. */
const OPERATOR_COST = 4;
/** The embedded database runs in this thread. Without a pause a long queue would block requests, timers and signals. */
const PAUSE_EVERY_MS = 10;
/** The minimum cost of a piece of work. Without it, work too short to measure would be free. */
const WORK_MS_MIN = 0.05;

/** `usedMs` is virtual time. It moves up to the others' when there is work again after none. */
type Flow = { usedMs: number };
/** The work of one account in a share. It is forgotten once it has neither waiting work nor used more than others. */
type AccountFlow = Flow & { waiting: (() => Promise<void>)[] };
type ShareFlow = Flow & {
  cost: number;
  accounts: Map<number | undefined, AccountFlow>;
  /** The virtual time of its work that started last. */
  presentMs: number;
};

export function createFairQueue(steadyMs: () => number): FairQueue {
  const flows = Object.fromEntries(shares.map((share) => [share, startFlow(share)])) as Record<
    Share,
    ShareFlow
  >;
  /** The virtual time of the work that started last. */
  let presentMs = 0;
  let running: Promise<void> | undefined;

  /** The share with work that has used the least time, and its account with work that has. */
  function next(): { flow: ShareFlow; account: AccountFlow } | undefined {
    const flow = leastUsed(Object.values(flows).filter((one) => waitingIn(one) > 0));
    const account =
      flow && leastUsed([...flow.accounts.values()].filter(({ waiting }) => waiting.length > 0));
    return flow && account && { flow, account };
  }

  async function runAll(): Promise<void> {
    let pausedMs = steadyMs();
    for (let turn = next(); turn !== undefined; turn = next()) {
      const { flow, account } = turn;
      const work = account.waiting.shift();
      presentMs = flow.usedMs;
      flow.presentMs = account.usedMs;
      const startedMs = steadyMs();
      await work?.();
      const costMs = Math.max(steadyMs() - startedMs, WORK_MS_MIN);
      flow.usedMs += flow.cost * costMs;
      account.usedMs += costMs;
      for (const [key, { waiting, usedMs }] of flow.accounts)
        if (waiting.length === 0 && usedMs <= flow.presentMs) flow.accounts.delete(key);
      if (steadyMs() - pausedMs < PAUSE_EVERY_MS) continue;
      await pause();
      pausedMs = steadyMs();
    }
    // This runs in the same event loop turn as the last `next`, so no work can be left waiting.
    running = undefined;
  }

  return {
    run<T>(share: Share, work: () => Promise<T>): Promise<T> {
      const flow = flows[share];
      const account = presentAccount();
      const own: AccountFlow = flow.accounts.get(account) ?? { usedMs: 0, waiting: [] };
      const tooMany = findTooMany(share, waitingIn(flow), { account, waiting: own.waiting.length });
      if (tooMany !== undefined)
        return Promise.reject(new Fault('unavailable', `database: ${tooMany} are already waiting`));
      const { promise, resolve, reject } = Promise.withResolvers<T>();
      if (waitingIn(flow) === 0) flow.usedMs = Math.max(flow.usedMs, presentMs);
      if (own.waiting.length === 0) own.usedMs = Math.max(own.usedMs, flow.presentMs);
      flow.accounts.set(account, own);
      own.waiting.push(() => work().then(resolve, reject));
      running ??= Promise.resolve().then(runAll);
      return promise;
    },
    async idle() {
      while (running !== undefined) await running;
    },
  };
}

const startFlow = (share: Share): ShareFlow => ({
  cost: share === 'operator' ? OPERATOR_COST : 1,
  ...{ usedMs: 0, presentMs: 0, accounts: new Map() },
});

const waitingIn = ({ accounts }: ShareFlow): number =>
  accounts.values().reduce((sum, { waiting }) => sum + waiting.length, 0);

/** The limit that keeps one more piece of work from waiting, if one does. */
function findTooMany(
  share: Share,
  waiting: number,
  own: { account: number | undefined; waiting: number },
): string | undefined {
  const max = WAITING_MAX[share];
  const mayExceed = own.account !== undefined && own.waiting < ACCOUNT_MIN;
  if (waiting >= max * (mayExceed ? TIMES_MAX : 1)) return `${max} statements of ${share}`;
  const ownMax = own.account === undefined ? max : max * ACCOUNT_PART;
  // Accounts that are no watcher's have ids below 1.
  const whose = (own.account ?? 0) > 0 ? 'watcher' : 'kind';
  return own.waiting >= ownMax ? `${ownMax} statements of this ${whose}` : undefined;
}

function leastUsed<F extends Flow>(flows: Iterable<F>): F | undefined {
  let least: F | undefined;
  for (const flow of flows) if (least === undefined || flow.usedMs < least.usedMs) least = flow;
  return least;
}
