/**
 * What a watcher's webhooks prove themselves with: its API key (spec 4.6), and the keys that sign (Standard Webhooks).
 */
import { decryptKey } from '../core/api-key.ts';
import type { SigningKeys } from '../core/signature.ts';
import { findDeliveryKey } from '../store/keys.ts';
import { listSigningSecrets, type SecretStore } from '../store/signing-secrets.ts';

export type Credentials = {
  /** Undefined when the watcher has no valid key. */
  apiKey: string | undefined;
  /** Newest first. */
  signingKeys: readonly SigningKeys[];
};

/** The watcher's credentials as they are now; not to be kept for longer than rotations and revocations may wait. */
export async function readCredentials(
  store: SecretStore,
  watcherId: number,
  now: Date,
): Promise<Credentials> {
  const [key, secrets] = await Promise.all([
    findDeliveryKey(store.database, watcherId, now),
    listSigningSecrets(store, watcherId, now),
  ]);
  return {
    apiKey: key && decryptKey(key, { keyId: key.id, watcherId }, store.keyRing),
    signingKeys: secrets.map(({ keys }) => keys),
  };
}
