/**
 * Protects stored secrets ("Secrets" in docs/explanation/architecture.md). Derives keys from `secret` and its predecessors, and
 * seals bytes with AES-256-GCM, bound to the row that holds the result.
 */
import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto';
import { Fault } from '../core/fault.ts';

/** The keys derived from one secret. The pepper is for looking up API keys, the key-encryption key for decrypting them. */
type RingKeys = {
  pepper: Buffer;
  /** Names the key-encryption key in the column `kek_id`. */
  kekId: string;
  kek: Buffer;
};

/** The keys of the current secret, which seal new data, and those of former secrets, which open older data. */
export type KeyRing = RingKeys & { former: readonly RingKeys[] };

/** A secret as it is stored: nonce ‖ ciphertext ‖ tag, and the id of the key-encryption key that opens it. */
export type Sealed = { ciphertext: Uint8Array; kekId: string };

const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** Derives the key ring from the 32 bytes of `secret` and of each former one (RFC 5869). */
export function deriveKeyRing(secret: Buffer, formerSecrets: readonly Buffer[] = []): KeyRing {
  return { ...deriveKeys(secret), former: formerSecrets.map(deriveKeys) };
}

/** The ids of all key-encryption keys of the ring, the current one first. */
export const kekIdsOf = (ring: KeyRing): string[] => [ring, ...ring.former].map(({ kekId }) => kekId);

/** Whether a secret is missing: stored rows are sealed under another key-encryption key than these. */
export const lacksKek = (known: readonly string[], stored: readonly string[]): boolean =>
  stored.some((kekId) => !known.includes(kekId));

function deriveKeys(secret: Buffer): RingKeys {
  const derive = (purpose: string, bytes: number) =>
    Buffer.from(hkdfSync('sha256', secret, Buffer.alloc(0), `chainbell ${purpose}`, bytes));
  return {
    pepper: derive('lookup', 32),
    kek: derive('encryption', 32),
    kekId: derive('encryption id', 6).toString('hex'),
  };
}

/** Seals bytes for `row` under the current key. `unseal` refuses them for any other row. */
export function seal(bytes: Uint8Array, row: string, { kek, kekId }: KeyRing): Sealed {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv('aes-256-gcm', kek, nonce).setAAD(boundTo(row, kekId));
  return {
    ciphertext: Buffer.concat([nonce, cipher.update(bytes), cipher.final(), cipher.getAuthTag()]),
    kekId,
  };
}

/**
 * The bytes that were sealed for this row.
 * @throws Fault `unavailable` if their secret is not configured, or if the bytes were changed or moved to another row.
 */
export function unseal({ ciphertext, kekId }: Sealed, row: string, ring: KeyRing): Buffer {
  const keys = [ring, ...ring.former].find((one) => one.kekId === kekId);
  if (keys === undefined) {
    throw new Fault(
      'unavailable',
      `${row} is sealed under a secret that is not given: add it to formerSecrets`,
    );
  }
  const sealed = Buffer.from(ciphertext.buffer, ciphertext.byteOffset, ciphertext.byteLength);
  try {
    const decipher = createDecipheriv('aes-256-gcm', keys.kek, sealed.subarray(0, NONCE_BYTES));
    decipher.setAAD(boundTo(row, kekId)).setAuthTag(sealed.subarray(-TAG_BYTES));
    return Buffer.concat([decipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES)), decipher.final()]);
  } catch (error) {
    throw new Fault('unavailable', `${row} does not open: it was changed, or moved from another row`, {
      cause: error,
    });
  }
}

function boundTo(row: string, kekId: string): Buffer {
  return Buffer.from(`v1|${row}|${kekId}`);
}
