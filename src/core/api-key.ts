/**
 * API keys (DESIGN §8): `cb_live_<id>_<32 random bytes, base62>_<crc>`. Looked up by HMAC, recovered for delivery from
 * AES-256-GCM that is bound to its row.
 */
import assert from 'node:assert/strict';
import { createCipheriv, createDecipheriv, createHmac, hkdfSync, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';

export type ApiKey = { id: string; text: string };

/** The two secrets derived from `secret`: lookup needs only the pepper, delivery only the key-encryption key. */
export type KeyRing = {
  pepper: Buffer;
  /** Names the key-encryption key in `api_key.kek_id`. */
  kekId: string;
  kek: Buffer;
};

/** What the ciphertext is bound to: moved to another row it does not decrypt. */
export type KeyOwner = { keyId: string; watcherId: number };

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const SECRET_BYTES = 32;
const ID_BYTES = 8;
/** Digits that hold every value of so many bytes: 2^64, 2^256 and 2^32 in base 62. */
const ID_DIGITS = 11;
const SECRET_DIGITS = 43;
const CHECKSUM_DIGITS = 6;
const FORM = new RegExp(`^(cb_live_\\w{${ID_DIGITS}}_\\w{${SECRET_DIGITS}})_(\\w{${CHECKSUM_DIGITS}})$`);
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** Derives the key ring from the 32 bytes of `secret` (RFC 5869). */
export function deriveKeyRing(secret: Buffer): KeyRing {
  const derive = (purpose: string, bytes: number) =>
    Buffer.from(hkdfSync('sha256', secret, Buffer.alloc(0), `chainbell ${purpose}`, bytes));
  return {
    pepper: derive('lookup', 32),
    kek: derive('encryption', 32),
    kekId: derive('encryption id', 6).toString('hex'),
  };
}

/** A new random key. */
export function generateApiKey(): ApiKey {
  const id = base62(randomBytes(ID_BYTES), ID_DIGITS);
  const body = `cb_live_${id}_${base62(randomBytes(SECRET_BYTES), SECRET_DIGITS)}`;
  return { id, text: `${body}_${checksum(body)}` };
}

/** Whether a text has the form and the checksum of a key; a typing error is told without asking the database. */
export function isWellFormedKey(text: string): boolean {
  const match = FORM.exec(text);
  return match?.[1] !== undefined && checksum(match[1]) === match[2];
}

/** The value under which a key is found: HMAC-SHA256 with the pepper. */
export function lookupOf(text: string, ring: KeyRing): Buffer {
  return createHmac('sha256', ring.pepper).update(text).digest();
}

/** nonce ‖ ciphertext ‖ tag. */
export function encryptKey(text: string, owner: KeyOwner, ring: KeyRing): Buffer {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv('aes-256-gcm', ring.kek, nonce).setAAD(boundTo(owner, ring));
  return Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]);
}

/** The key's text. @throws Error when the bytes belong to another row or another key-encryption key. */
export function decryptKey(bytes: Uint8Array, owner: KeyOwner, ring: KeyRing): string {
  const sealed = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const decipher = createDecipheriv('aes-256-gcm', ring.kek, sealed.subarray(0, NONCE_BYTES)).setAAD(
    boundTo(owner, ring),
  );
  decipher.setAuthTag(sealed.subarray(-TAG_BYTES));
  return Buffer.concat([
    decipher.update(sealed.subarray(NONCE_BYTES, -TAG_BYTES)),
    decipher.final(),
  ]).toString('utf8');
}

function boundTo({ keyId, watcherId }: KeyOwner, { kekId }: KeyRing): Buffer {
  return Buffer.from(`v1|${keyId}|${watcherId}|${kekId}`);
}

function checksum(body: string): string {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(crc32(body));
  return base62(bytes, CHECKSUM_DIGITS);
}

/** Bytes as a base-62 number, padded to `length` digits, which must be enough for the largest. */
function base62(bytes: Uint8Array, length: number): string {
  let rest = BigInt(`0x${Buffer.from(bytes).toString('hex')}`);
  let digits = '';
  while (rest > 0n) {
    digits = `${ALPHABET[Number(rest % 62n)]}${digits}`;
    rest /= 62n;
  }
  assert(digits.length <= length);
  return digits.padStart(length, '0');
}
