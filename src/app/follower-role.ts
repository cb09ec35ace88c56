/**
 * The role `follower`: follows the chain into the database. One process leads; the others stand by.
 */
import type { ContractReader } from '../chain/contracts/contracts.ts';
import { rulesOf } from '../config/point-rules.ts';
import { Fault } from '../core/fault.ts';
import { createWake, type Step } from '../core/loop.ts';
import type { ValuedPair } from '../domain/pair.ts';
import { type BackfillDisplay, createBackfill, logDisplay } from '../ingest/backfill.ts';
import { createCatchUp } from '../ingest/catch-up.ts';
import { createDeferredWriter } from '../ingest/deferred-writer.ts';
import { createFollower } from '../ingest/follow.ts';
import { createFullChecks, type FullChecks } from '../ingest/full-checks.ts';
import { createMarketProcessor } from '../ingest/pairs/market.ts';
import { createPairBackfill } from '../ingest/pairs/pair-backfill.ts';
import { createPairCheck } from '../ingest/pairs/pair-check.ts';
import { checkPairs } from '../ingest/pairs/pair-contracts.ts';
import { createPairReader } from '../ingest/pairs/pair-events.ts';
import { createPairReadings } from '../ingest/pairs/pair-readings.ts';
import { createPairPruner } from '../ingest/pairs/pair-retention.ts';
import { createSwapValuer } from '../ingest/pairs/swap-values.ts';
import { createActivityReader, createSenderNeeds } from '../ingest/points/activities.ts';
import { createPointsProcessor } from '../ingest/points/points.ts';
import { createTransferProver } from '../ingest/prove-transfers.ts';
import { createWorkerCheck, type WorkerCheck } from '../ingest/worker-check.ts';
import { listStoredPairs } from '../store/market/pairs.ts';
import { type AddressFilter, createAddressFilter } from '../store/matching/address-filter.ts';
import { RESUME_MS_MAX } from './background-loops.ts';
import type { ChainAccess } from './chain-access.ts';
import type { Elections } from './elections.ts';
import type { Foundation } from './foundation.ts';
import { createHeadWatch } from './head-watch.ts';
import { createHoldUp, type HoldUp } from './hold-up.ts';
import type { Status } from './status.ts';
import { valuedPairs } from './valued-pairs.ts';

type FollowerRole = {
  fullChecks: FullChecks;
  /** Whether this process is the leading follower. */
  leads(): boolean;
  /** Since when the database has held up the storing of blocks; undefined while it doesn't. */
  heldUpSince: HoldUp['since'];
  /** Resolves when a node on this chain has answered. @throws Fault as startService does. */
  run(status: Status): Promise<void>;
};

type FollowerNeeds = {
  access: ChainAccess;
  contracts: ContractReader;
  /** Rings when a node announces a new head. */
  headWake: ReturnType<typeof createWake>;
  /** The lock is given back when following ends, so that a stop doesn't hold it until everything else has ended. */
  elections: Pick<Elections, 'follower' | 'resign'>;
  /** Where a backfill shows its progress; the log by default. */
  display: BackfillDisplay | undefined;
};

/** How often nodes are polled without pushed heads, and a standby tries to lead. */
const POLL_MS = 500;
/** How often nodes are polled as a watchdog beside pushed heads. */
const POLL_PUSHED_MS = 2_000;
/** How often to look whether the follower still reads the head. */
const HEAD_WATCH_MS = 1_000;
/** How soon after a block its pair data is completed, such as the supply after a mint, or a first price. */
const PAIRS_MS = 1_000;
/** How often to look for deferred notifications. A commit that leaves some wakes the loop at once. */
const DEFERRED_MS = 1_000;
/** How often pairs are compared with their contracts, after the start. */
const PAIR_CHECK_MS = 86_400_000;
const PRUNE_MS = 60_000;
/** How often lost shards are probed (Citus). */
const LOST_MS = 1_000;
/** How often the address filter takes changes that no block has taken. */
const FILTER_MS = 1_000;

export function createFollowerRole(base: Foundation, needs: FollowerNeeds): FollowerRole {
  const { config, log, metrics, clock, steadyClock, shares, loops, atStart } = base;
  const { access, contracts, headWake, elections } = needs;
  const { nodes, verifier } = access;
  const display = needs.display ?? logDisplay(steadyClock, log);
  const { id: chainId, startBlock, confirmations, finalityDepth } = config.chain;
  const database = shares.follower;
  const rules = rulesOf(config);
  const pairs = valuedPairs(config);
  const fullChecks = createFullChecks({ clock, log, onLie: nodes.noteLie });
  const deferredWake = createWake(clock);
  let leads = () => false;
  let session: object | undefined;
  const term = () => session;
  const checkWorkers = createWorkerCheck({ database, clock, log });
  const filter = openAddressFilter(base, () => leads());
  const holdUp = createHoldUp(clock);
  const headWatch = createHeadWatch(nodes, clock);
  const follower = createFollower({
    ...{ database: holdUp.watch(database), nodes: { ...nodes, head: headWatch.head }, clock, log, metrics },
    ...{ chainId, startBlock, confirmations, finalityDepth },
    processors: [createMarketProcessor(pairs, clock), createPointsProcessor({ rules, log })],
    extract: {
      pairEvents: createPairReader(pairs),
      activities: createActivityReader(rules),
      needsSenders: createSenderNeeds(rules),
    },
    backfill: createBackfill({ clock: steadyClock, log, display }),
    checks: verifier,
    filter: { transaction: (work) => holdUp.during(() => filter.transaction(work)) },
    ...{ checkWorkers, onDeferred: () => deferredWake.ring() },
    unhashedProof: {
      fullChecks,
      proverOf: createTransferProver({ voters: nodes, recover: verifier.recover, log }),
    },
    async isLeader() {
      const { isLeader, isHeld, ...elected } = await elections.follower();
      session = elected.session;
      leads = () => isLeader && isHeld();
      return isLeader;
    },
    term,
  });
  const led =
    (step: Step): Step =>
    async (abort) =>
      leads() ? step(abort) : 'idle';

  return {
    fullChecks,
    leads: () => leads(),
    heldUpSince: holdUp.since,
    async run(status) {
      // The API and delivery work meanwhile. Only a chain that doesn't match ends the start.
      const pin = status.watch(async (abort) => {
        await follower.pin(abort);
        return 'idle';
      });
      await atStart('nodes', () => pin(loops.signal));
      if (pairs.length > 0) await startPairs(base, { access, contracts, pairs, led });
      runUpkeep(base, { filter, checkWorkers, deferredWake, led, term });
      loops.run('follower', status.watch(follower.step), {
        idleMs: () => (leads() && nodes.isPushed() ? POLL_PUSHED_MS : POLL_MS),
        wake: headWake,
        // A hold must end with the poll after the nodes agree again. Each failing node has a separate back-off.
        retryMsMax: RESUME_MS_MAX,
      });
      loops.runAside('head', headWatch.step, { idleMs: () => HEAD_WATCH_MS });
      void loops.ended('follower').then(elections.resign);
    },
  };
}

type Upkeep = {
  filter: AddressFilter;
  checkWorkers: WorkerCheck;
  deferredWake: ReturnType<typeof createWake>;
  /** The step for the process that leads. */
  led(step: Step): Step;
  term(): object | undefined;
};

function runUpkeep(base: Foundation, { filter, checkWorkers, deferredWake, led, term }: Upkeep): void {
  const { config, shares, clock, log, metrics, loops, unlessStepped } = base;
  const { confirmations } = config.chain;
  const database = shares.follower;
  const writer = createDeferredWriter({ database, clock, metrics, confirmations, term });
  const idleMs = () => DEFERRED_MS;
  loops.run('deferred notifications', led(writer), {
    ...{ idleMs, wake: deferredWake, retryMsMax: RESUME_MS_MAX },
  });
  if (database.isDistributed === true) {
    const step = createCatchUp({ database, clock, log, metrics, confirmations, checkWorkers });
    loops.run('lost shards', led(step), { idleMs: () => LOST_MS, retryMsMax: RESUME_MS_MAX });
  }
  loops.run('address filter', filter.step, { idleMs: () => FILTER_MS });
  // Runs without configured pairs too, to prune data of pairs that are no longer configured.
  const pruner = createPairPruner({ database, clock, ...config.retention });
  loops.runAside('pair retention', led(unlessStepped(pruner)), { idleMs: () => PRUNE_MS });
}

function openAddressFilter(
  { config, shares, steadyClock, log, metrics }: Foundation,
  leads: () => boolean,
): AddressFilter {
  const { minRecords } = config.chain.addressFilter;
  return createAddressFilter({
    ...{ database: shares.follower, clock: steadyClock, log, metrics, leads },
    minRecords: minRecords === 'off' ? undefined : minRecords,
  });
}

type PairNeeds = Pick<FollowerNeeds, 'access' | 'contracts'> & {
  pairs: readonly ValuedPair[];
  /** The step for the process that leads. */
  led(step: Step): Step;
};

/** Resolves when the contracts of new pairs have been checked. @throws Fault as `checkContracts` */
async function startPairs(base: Foundation, { access, contracts, pairs, led }: PairNeeds): Promise<void> {
  const { loops, clock, log, shares, atStart } = base;
  const stored = new Set(await atStart('database', () => listStoredPairs(shares.follower)));
  const begun = pairs.filter(({ id }) => !stored.has(id));
  await atStart('nodes', () =>
    checkContracts(access.nodes, { contracts, pairs: begun, signal: loops.signal }),
  );
  const market = { database: shares.follower, clock, log, pairs };
  const timing = { idleMs: () => PAIRS_MS };
  loops.runAside('pair readings', led(createPairReadings({ ...market, nodes: contracts })), timing);
  const anchored = { bundles: access.nodes.anchored };
  loops.runAside('pair backfill', led(createPairBackfill({ ...market, nodes: anchored })), timing);
  loops.runAside('swap values', led(createSwapValuer(market)), timing);
  // Not by `led`, so that the first check doesn't depend on who leads at the start.
  const compared = { nodes: contracts, log, pairs: pairs.filter(({ id }) => stored.has(id)) };
  loops.runAside('pair check', createPairCheck(compared), { idleMs: () => PAIR_CHECK_MS });
}

/**
 * Only new pairs, which have no data yet: a contract that changes later must not prevent the start. A single node suffices when no quorum
 * answers, because no result is stored and a missing node must not prevent the start.
 */
async function checkContracts(
  nodes: ChainAccess['nodes'],
  {
    contracts,
    pairs,
    signal,
  }: { contracts: ContractReader; pairs: readonly ValuedPair[]; signal: AbortSignal },
): Promise<void> {
  try {
    await checkPairs(contracts, pairs, signal);
  } catch (error) {
    if (!(error instanceof Fault) || error.code !== 'unavailable') throw error;
    await checkPairs(nodes, pairs, signal);
  }
}
