/**
 * What the rules of points ask for in a block: decoded logs of their events and contracts. Pure; a log that no rule asks
 * for costs a look into a map.
 */
import type { Bundle } from '../../chain/blocks/bundle.ts';
import type { Address, Hash } from '../../core/hex.ts';
import type { BlockHeader } from '../../domain/block.ts';
import { type AbiValue, decodeEvent } from '../../domain/event-signature.ts';
import type { Listener, Rules } from '../../domain/points/rules.ts';

/** A log, for one of those that asked for it. */
export type Activity<Listening extends Listener = Listener> = {
  listener: Listening;
  txHash: Hash;
  /** Who sent the transaction. */
  sender: Address;
  contract: Address;
  /** Index of the log within its receipt, which survives re-inclusion; and within its block, by which it has its turn. */
  ordinal: number;
  logIndex: number;
  /** In the order of the signature. */
  values: readonly (AbiValue | undefined)[];
};

/** An activity with its block. */
export type Placed<Listening extends Listener = Listener> = {
  activity: Activity<Listening>;
  block: BlockHeader;
};

/** Those of one kind of listener. */
export function ofKind<Kind extends Listener['kind']>(
  placed: readonly Placed[],
  kind: Kind,
): Placed<Extract<Listener, { kind: Kind }>>[] {
  return placed.filter(
    (one): one is Placed<Extract<Listener, { kind: Kind }>> => one.activity.listener.kind === kind,
  );
}

/** What the rules ask for in a block, in its order. Transactions that failed have no activities. */
export function createActivityReader({ listeners }: Rules): (bundle: Bundle) => Activity[] {
  if (listeners.length === 0) return () => [];
  const byTopic = indexByTopic(listeners);
  return ({ transactions }) => {
    const activities: Activity[] = [];
    let logIndex = -1;
    for (const { hash, from, succeeded, logs } of transactions) {
      for (const [ordinal, log] of logs.entries()) {
        logIndex += 1;
        const [topic] = log.topics;
        const asking = topic === undefined ? undefined : byTopic.get(topic)?.get(log.address);
        if (asking === undefined || !succeeded) continue;
        for (const listener of asking) {
          const values = decodeEvent(listener.signature, log);
          if (values === undefined) continue;
          const place = { txHash: hash, sender: from, contract: log.address, ordinal, logIndex };
          activities.push({ listener, ...place, values });
        }
      }
    }
    return activities;
  };
}

function indexByTopic(listeners: readonly Listener[]): Map<Hash, Map<Address, Listener[]>> {
  const byTopic = new Map<Hash, Map<Address, Listener[]>>();
  for (const listener of listeners) {
    const byAddress = byTopic.get(listener.signature.topic) ?? new Map<Address, Listener[]>();
    byTopic.set(listener.signature.topic, byAddress);
    for (const address of listener.tokens.keys())
      byAddress.set(address, [...(byAddress.get(address) ?? []), listener]);
  }
  return byTopic;
}
