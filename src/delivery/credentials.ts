/**
 * The credentials that a watcher's webhooks carry: its API key (spec 4.6) and its signing keys (Standard Webhooks).
 */
import type { Clock } from '../core/clock.ts';
import { decryptKey } from '../domain/api-key.ts';
import type { MessageKeys } from '../domain/signature.ts';
import { findDeliveryKeys } from '../store/watchers/api-keys.ts';
import { listSecretsOf, type SecretStore } from '../store/watchers/signing-secrets.ts';
import type { Message, Send, SendResult } from './send.ts';

/** Together with the time that rows are read ahead, this keeps the promise that a revocation takes effect within 5 s. */
const CREDENTIALS_MS_MAX = 4_000;

export type Credentials = {
  /** When they were read, on the steady clock. */
  readMs: number;
  /** Undefined when the watcher has no valid key. */
  apiKey: string | undefined;
  /** Newest first. */
  signingKeys: readonly MessageKeys[];
};

/**
 * Reads the watchers' current credentials. Don't keep them for longer than a rotation or revocation may take to have effect. The returned function
 * throws the Fault of a watcher whose credentials can't be read.
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
      signingKeys: (secrets.get(watcherId) ?? []).map((open) => {
        const { keys, signsV1a } = open();
        return signsV1a ? keys : { hmacKey: keys.hmacKey };
      }),
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
 * Sends the webhook rendered with these credentials. If they become too old before the request is written, for example while a slow
 * receiver accepts the connection, renders it again with the current ones. Rejects as Send does.
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
    hmacKeys: () => current.signingKeys.map(({ hmacKey }) => hmacKey),
  });
}
