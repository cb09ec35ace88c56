/**
 * Signs messages as Standard Webhooks 1.0 says, over `id.timestamp.body`. `v1` is HMAC-SHA256 with a secret that the receiver
 * shares. `v1a` is ed25519, for which the receiver needs only the public key.
 */
import {
  createHmac,
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  type KeyObject,
  randomBytes,
  sign,
} from 'node:crypto';

/** One secret and one key pair. They are created and expire together. */
export type SigningKeys = { hmacKey: KeyObject; privateKey: KeyObject };

/** The keys that sign a message. Without `privateKey` it gets no `v1a` signature, which costs ten times as much as `v1`. */
export type MessageKeys = { hmacKey: KeyObject; privateKey?: KeyObject | undefined };

const HMAC_KEY_BYTES = 32;
const PRIVATE_KEY_BYTES = 32;
/** An ed25519 private key in DER is this constant prefix and the key's 32 bytes (RFC 8410). */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex');
const PUBLIC_KEY_BYTES = 32;

/** Random bytes for new signing keys. `readSigningKeys` turns them into keys. */
export function generateSigningBytes(): Buffer {
  return randomBytes(HMAC_KEY_BYTES + PRIVATE_KEY_BYTES);
}

export function readSigningKeys(bytes: Buffer): SigningKeys {
  const privateBytes = bytes.subarray(HMAC_KEY_BYTES);
  return {
    hmacKey: createSecretKey(bytes.subarray(0, HMAC_KEY_BYTES)),
    privateKey: createPrivateKey({
      key: Buffer.concat([PKCS8_PREFIX, privateBytes]),
      format: 'der',
      type: 'pkcs8',
    }),
  };
}

/** The secret as `whsec_…`, the form that receivers' libraries accept. */
export function secretText({ hmacKey }: SigningKeys): string {
  return `whsec_${hmacKey.export().toString('base64')}`;
}

/** The public key as `whpk_…`. */
export function publicKeyText({ privateKey }: SigningKeys): string {
  const der = createPublicKey(privateKey).export({ format: 'der', type: 'spki' });
  return `whpk_${der.subarray(-PUBLIC_KEY_BYTES).toString('base64')}`;
}

/** The header `webhook-signature`. It has signatures for all keys, so that a receiver needs only one of them. */
export function signMessage(
  { id, timestamp, body }: { id: string; timestamp: string; body: string },
  keys: readonly MessageKeys[],
): string {
  const content = Buffer.from(`${id}.${timestamp}.${body}`);
  const signatures = keys.flatMap(({ hmacKey, privateKey }) => [
    `v1,${createHmac('sha256', hmacKey).update(content).digest('base64')}`,
    ...(privateKey === undefined ? [] : [`v1a,${sign(null, content, privateKey).toString('base64')}`]),
  ]);
  return signatures.join(' ');
}
