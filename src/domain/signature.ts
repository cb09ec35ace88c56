/**
 * Signatures of Standard Webhooks 1.0, over `id.timestamp.body`: `v1` is HMAC-SHA256 with a secret that the receiver
 * has too, `v1a` is ed25519, for which the public key is enough.
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

/** One secret and one key pair, which are made and ended together. */
export type SigningKeys = { hmacKey: KeyObject; privateKey: KeyObject };

const HMAC_KEY_BYTES = 32;
const PRIVATE_KEY_BYTES = 32;
/** An ed25519 key in DER is a constant and the key's 32 bytes (RFC 8410). */
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex');
const PUBLIC_KEY_BYTES = 32;

/** The random bytes from which new signing keys are read. */
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

/** `whsec_…`, as a receiver's library takes it. */
export function secretText({ hmacKey }: SigningKeys): string {
  return `whsec_${hmacKey.export().toString('base64')}`;
}

/** `whpk_…`; no secret. */
export function publicKeyText({ privateKey }: SigningKeys): string {
  const der = createPublicKey(privateKey).export({ format: 'der', type: 'spki' });
  return `whpk_${der.subarray(-PUBLIC_KEY_BYTES).toString('base64')}`;
}

/** The header `webhook-signature`: both signatures with each of the keys, so that a receiver may know any of them. */
export function signMessage(
  { id, timestamp, body }: { id: string; timestamp: string; body: string },
  keys: readonly SigningKeys[],
): string {
  const content = Buffer.from(`${id}.${timestamp}.${body}`);
  const signatures = keys.flatMap(({ hmacKey, privateKey }) => [
    `v1,${createHmac('sha256', hmacKey).update(content).digest('base64')}`,
    `v1a,${sign(null, content, privateKey).toString('base64')}`,
  ]);
  return signatures.join(' ');
}
