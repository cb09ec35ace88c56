/**
 * Decodes the logs that points rules listen to. Any other log costs one map look-up. Pure.
 */
import type { Bundle } from '../../chain/blocks/bundle.ts';
import type { Address, Hash } from '../../core/hex.ts';
import { decodeEvent } from '../../domain/event-signature.ts';
import type { Activity } from '../../domain/points/activity.ts';
import { type Listener, type Rules, readsSender } from '../../domain/points/rules.ts';

/** Reads the activities of a block in the order of its logs. Failed transactions have none. */
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
        const listening = topic === undefined ? undefined : byTopic.get(topic)?.get(log.address);
        if (listening === undefined || !succeeded) continue;
        for (const listener of listening) {
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

/** Finds the transactions of a block whose senders get points or a balance. */
export function createSenderNeeds(rules: Rules): (bundle: Bundle) => Hash[] {
  const read = createActivityReader({ ...rules, listeners: rules.listeners.filter(readsSender) });
  return (bundle) => [...new Set(read(bundle).map(({ txHash }) => txHash))];
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
