/**
 * The role `delivery`: sends due webhooks, and prunes old rows.
 */
import { createDeliverer, HEARTBEAT_MS, type InFlight } from '../delivery/deliver.ts';
import { createPendingAlarm, PENDING_ALARM_MS } from '../delivery/pending-alarm.ts';
import { createSender, type SenderOptions } from '../delivery/send.ts';
import type { SessionKeeper } from '../store/db/session-keeper.ts';
import { createDeliveryCount } from '../store/delivery/count-deliveries.ts';
import { createLaneRepair } from '../store/delivery/lane-repair.ts';
import { createReceiverRepair } from '../store/delivery/receivers.ts';
import { createPruner } from '../store/retention/retention.ts';
import { RESUME_MS_MAX } from './background-loops.ts';
import type { Foundation } from './foundation.ts';
import { limitsOf } from './watcher-limits.ts';

export type DeliveryRole = {
  readonly inFlight: InFlight;
  /** Takes a notice that something is due. */
  ring(lane: string): void;
  run(): void;
  /** Resolves when no attempt is under way. After `graceMs` it aborts those that still are. */
  stop(graceMs: number): Promise<void>;
};

/** How often a repair checks its next page: a thousand lanes, or a thousand failing receivers. */
const REPAIR_MS = 2_000;
const PRUNE_MS = 60_000;

export function createDeliveryRole(
  { config, log, metrics, clock, shares, keyRing, loops, mayPrune, unlessStepped }: Foundation,
  {
    sender,
    sessions,
    onSettled,
  }: {
    sender: SenderOptions;
    sessions: () => SessionKeeper;
    onSettled(watcherIds: readonly number[]): void;
  },
  parts: AsyncDisposableStack,
): DeliveryRole {
  const { send, close } = createSender(sender);
  parts.defer(close);
  const { nativeSymbol, retryMinutes } = { nativeSymbol: config.chain.native.symbol, ...config.webhooks };
  const deliverer = createDeliverer({
    ...{ database: shares.delivery, settling: shares.settle, clock, log, metrics, keyRing },
    ...{ nativeSymbol, retryMinutes, send, onSettled },
    session: () => sessions().current(),
  });
  deliverer.failed.catch(loops.fail);
  return {
    inFlight: deliverer.inFlight,
    ring: deliverer.ring,
    stop: deliverer.stop,
    run() {
      const retryMsMax = RESUME_MS_MAX;
      const { run, runAside } = loops;
      run('delivery', deliverer.step, { idleMs: deliverer.idleMs, wake: deliverer.wake, retryMsMax });
      run('delivery heartbeat', deliverer.heartbeat, { idleMs: () => HEARTBEAT_MS, retryMsMax });
      const database = shares.delivery;
      const repair = createLaneRepair({ database, clock, log, metrics });
      runAside('lane repair', unlessStepped(repair), { idleMs: () => REPAIR_MS });
      const alarm = createPendingAlarm({ database, log, limits: limitsOf(config) });
      runAside('pending alarm', alarm, { idleMs: () => PENDING_ALARM_MS });
      runAside('receiver repair', createReceiverRepair(database), { idleMs: () => REPAIR_MS });
      const count = createDeliveryCount({ database, clock, attemptsMs: config.retention.attemptsMs });
      runAside('statistics', count.step, { idleMs: count.idleMs });
      const pruner = createPruner({ database, clock, ...config.retention, mayPrune });
      runAside('retention', pruner, { idleMs: () => PRUNE_MS });
    },
  };
}
