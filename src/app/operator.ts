/**
 * What the operator API needs from the whole program: the same functions as the command line has.
 */
import type { OperatorSources } from '../api/context.ts';
import { printableConfig } from '../config/printable-config.ts';
import type { Config } from '../config/schema.ts';
import type { Clock } from '../core/clock.ts';
import { createDeliveryCount } from '../store/delivery/count-deliveries.ts';
import type { SecretStore } from '../store/watchers/signing-secrets.ts';
import { issueKey, revokeKeyNow, rotateKey } from './issue-keys.ts';

export function createOperatorSources(
  config: Config,
  { clock, ...store }: SecretStore & { clock: Clock },
): OperatorSources {
  const { database } = store;
  const { attemptsMs } = config.retention;
  return {
    issueKey: (watcherName, slices) => issueKey(store, watcherName, clock.now(), slices),
    rotateKey: (keyId, overlapMs) => rotateKey(store, keyId, { now: clock.now(), overlapMs }),
    revokeKey: (keyId) => revokeKeyNow(database, keyId, clock.now()),
    countDeliveries: createDeliveryCount({ database, clock, attemptsMs }).step,
    configuration: () => printableConfig(config),
    async explain(txHash, signal) {
      // Loaded when it is needed, because it compiles the rules and opens connections to nodes.
      const [{ explainTransaction }, { explanationJson }] = await Promise.all([
        import('./explain-transaction.ts'),
        import('./explanation-json.ts'),
      ]);
      const explanation = await explainTransaction(config, txHash, { database, clock, signal });
      const { awards, transaction } = explanation;
      const isUnknown = 'missing' in transaction && transaction.missing === 'unknown';
      return awards.length === 0 && isUnknown ? undefined : explanationJson(txHash, explanation);
    },
  };
}
