/**
 * What a watcher's webhooks prove themselves with: its API key (spec 4.6), and the keys that sign (Standard Webhooks).
 */
import type { Clock } from '../core/clock.ts';
import { decryptKey } from '../domain/api-key.ts';
import type { SigningKeys } from '../domain/signature.ts';
import { findDeliveryKeys } from '../store/watchers/api-keys.ts';
import { listSecretsOf, type SecretStore } from '../store/watchers/signing-secrets.ts';
import type { Message, Send, SendResult } from './send.ts';

/** With what lies between two turns of a lane, a revocation is effective within the 5 s that are promised. */
const CREDENTIALS_MS_MAX = 4_000;

export type Credentials = {
  /** On the clock that never steps. */
  readMs: number;
  /** Undefined when the watcher has no valid key. */
  apiKey: string | undefined;
  /** Newest first. */
  signingKeys: readonly SigningKeys[];
};

/**
 * Reads the watchers' credentials as they are now; not to be kept for longer than rotations and revocations may wait. The
 * result throws the Fault of a watcher whose credentials can't be read.
 */
export async function readCredentials(
  { clock, ...store }: SecretStore & { clock: Clock },
  watcherIds: readonly number[],
): Promise<(watcherId: number) => Credentials> {
  const [now, readMs] = [clock.now(), clock.steadyMs()];
  const [keys, secrets] = await Promise.all([
    findDeliveryKeys(store.database, watcherIds, now),
    listSecretsOf(store, watcherIds, now),
  ]);
  return (watcherId) => {
    const key = keys.get(watcherId);
    return {
      readMs,
      apiKey: key && decryptKey(key, { keyId: key.id, watcherId }, store.keyRing),
      signingKeys: (secrets.get(watcherId) ?? []).map((open) => open().keys),
    };
  };
}

/** One watcher's credentials. @throws Fault where they can't be read. */
export async function readCredentialsOf(
  store: SecretStore & { clock: Clock },
  watcherId: number,
): Promise<Credentials> {
  return (await readCredentials(store, [watcherId]))(watcherId);
}

/**
 * Sends the webhook rendered with these credentials; renders it again with the current ones if they have become too old
 * before the request goes out, as while a receiver was slow to take the connection. Rejects as Send does.
 */
export function sendWith(
  credentials: Credentials,
  {
    watcherId,
    render,
    signal,
  }: { watcherId: number; render(credentials: Credentials): Message; signal: AbortSignal },
  { send, clock, ...store }: SecretStore & { send: Send; clock: Clock },
): Promise<SendResult> {
  let current = credentials;
  return send(render(current), signal, {
    isFresh: () => clock.steadyMs() - current.readMs <= CREDENTIALS_MS_MAX,
    async renew() {
      current = await readCredentialsOf({ ...store, clock }, watcherId);
      return render(current);
    },
  });
}
