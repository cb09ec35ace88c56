/**
 * The role `follower`: the chain is followed into the database, by one process at a time.
 */
import type { ContractReader } from '../chain/contracts/contracts.ts';
import { rulesOf } from '../config/points.ts';
import { Fault } from '../core/fault.ts';
import { createWake, type Step } from '../core/loop.ts';
import { type BackfillDisplay, createBackfill, logDisplay } from '../ingest/backfill.ts';
import { createDeferredWriter } from '../ingest/deferred-writer.ts';
import { createFollower } from '../ingest/follow.ts';
import { createFullChecks, type FullChecks } from '../ingest/full-checks.ts';
import { createMarketProcessor } from '../ingest/pairs/market.ts';
import { createPairBackfill } from '../ingest/pairs/pair-backfill.ts';
import { checkPairs } from '../ingest/pairs/pair-contracts.ts';
import { createPairReader } from '../ingest/pairs/pair-events.ts';
import { createPairReadings } from '../ingest/pairs/pair-readings.ts';
import { createPairPruner } from '../ingest/pairs/pair-retention.ts';
import { createSwapValuer } from '../ingest/pairs/swap-values.ts';
import { createActivityReader } from '../ingest/points/activities.ts';
import { createPointsProcessor } from '../ingest/points/points.ts';
import { createTransferProver } from '../ingest/prove-transfers.ts';
import { RESUME_MS_MAX } from './background-loops.ts';
import type { ChainAccess } from './chain-access.ts';
import type { Foundation } from './foundation.ts';
import type { Status } from './status.ts';
import { valuedPairs } from './valued-pairs.ts';

type FollowerRole = {
  fullChecks: FullChecks;
  /** Whether this process is the one that follows; others stand by. */
  leads(): boolean;
  /** Resolves when the nodes are known to be of this chain. @throws Fault as startService does. */
  run(status: Status): Promise<void>;
};

type FollowerNeeds = {
  access: ChainAccess;
  contracts: ContractReader;
  /** A new head was announced. */
  headWake: ReturnType<typeof createWake>;
  /** Takes the lock of the one follower; `isHeld` says whether it was kept since. */
  elect(): Promise<{ isLeader: boolean; isHeld(): boolean }>;
  /** Where a backfill shows how far it is; the log by default. */
  display: BackfillDisplay | undefined;
};

/** Without pushed heads the nodes are asked this often, with them only as a watchdog. */
const POLL_MS = 500;
const POLL_PUSHED_MS = 2_000;
/** How soon what follows from a block is done for pairs: a mint's supply, a first price. */
const PAIRS_MS = 1_000;
/** Deferred notifications are looked for this often, and at once after a commit that leaves some. */
const DEFERRED_MS = 1_000;
const PRUNE_MS = 60_000;

export function createFollowerRole(base: Foundation, needs: FollowerNeeds): FollowerRole {
  const { config, log, metrics, clock, steadyClock, shares, loops, unlessStepped, atStart } = base;
  const { access, contracts, headWake, elect } = needs;
  const { nodes, verifier } = access;
  const { id: chainId, startBlock, confirmations, finalityDepth } = config.chain;
  const database = shares.follower;
  const rules = rulesOf(config);
  const pairs = valuedPairs(config);
  const fullChecks = createFullChecks({ clock, log });
  const deferredWake = createWake(clock);
  let leads = () => false;
  const follower = createFollower({
    ...{ database, nodes, clock, log, metrics, chainId, startBlock, confirmations, finalityDepth },
    processors: [createMarketProcessor(pairs, clock), createPointsProcessor({ rules, log })],
    extract: { pairEvents: createPairReader(pairs), activities: createActivityReader(rules) },
    backfill: createBackfill({
      clock: steadyClock,
      log,
      display: needs.display ?? logDisplay(steadyClock, log),
    }),
    checks: verifier,
    unhashedProof: {
      fullChecks,
      proverOf: createTransferProver({ voters: nodes, recover: verifier.recover, log }),
    },
    onDeferred: () => deferredWake.ring(),
    async isLeader() {
      const { isLeader, isHeld } = await elect();
      leads = () => isLeader && isHeld();
      return isLeader;
    },
  });
  const led =
    (step: Step): Step =>
    async (abort) =>
      leads() ? step(abort) : 'idle';

  return {
    fullChecks,
    leads: () => leads(),
    async run(status) {
      // The API serves and webhooks go out meanwhile; only a chain that does not fit ends the start.
      const pin = status.watch(async (abort) => {
        await follower.pin(abort);
        return 'idle';
      });
      await atStart('nodes', () => pin(loops.signal));
      await atStart('nodes', checkContracts);
      if (pairs.length > 0) runPairs();
      const writer = createDeferredWriter({ database, clock, metrics, confirmations });
      loops.run('deferred notifications', led(writer), {
        idleMs: () => DEFERRED_MS,
        wake: deferredWake,
        retryMsMax: RESUME_MS_MAX,
      });
      // Facts of pairs that are configured no more grow old too.
      const pruner = createPairPruner({ database, clock, ...config.retention });
      loops.run('pair retention', led(unlessStepped(pruner)), { idleMs: () => PRUNE_MS });
      loops.run('follower', status.watch(follower.step), {
        idleMs: () => (nodes.isPushed() ? POLL_PUSHED_MS : POLL_MS),
        wake: headWake,
        // Holding ends with the poll after the nodes agree again; nodes that fail are left to rest by themselves.
        retryMsMax: RESUME_MS_MAX,
      });
    },
  };

  function runPairs(): void {
    const market = { database, clock, log, pairs };
    const timing = { idleMs: () => PAIRS_MS };
    loops.run('pair readings', led(createPairReadings({ ...market, nodes: contracts })), timing);
    const anchored = { bundles: nodes.anchored };
    loops.run('pair backfill', led(createPairBackfill({ ...market, nodes: anchored })), timing);
    loops.run('swap values', led(createSwapValuer(market)), timing);
  }

  /** A missing second node must not keep the service from starting. One node suffices, because no result is stored. */
  async function checkContracts(): Promise<void> {
    try {
      await checkPairs(contracts, pairs, loops.signal);
    } catch (error) {
      if (!(error instanceof Fault) || error.code !== 'unavailable') throw error;
      await checkPairs(nodes, pairs, loops.signal);
    }
  }
}
