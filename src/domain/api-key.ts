/**
 * API keys: `cb_live_<id>_<32 random bytes, base62>_<crc>`. Requests look a key up by its HMAC. Delivery decrypts it: the
 * stored ciphertext is AES-256-GCM, bound to its row.
 */
import assert from 'node:assert/strict';
import { createHmac, randomBytes } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { type KeyRing, type Sealed, seal, unseal } from './key-ring.ts';

type ApiKey = { id: string; text: string };

/** The row that the ciphertext is bound to. Moved to another row, it doesn't decrypt. */
type KeyOwner = { keyId: string; watcherId: number };

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const SECRET_BYTES = 32;
const ID_BYTES = 8;
/** Base-62 digits that hold every value of the id (2^64), the secret (2^256) and the checksum (2^32). */
const ID_DIGITS = 11;
const SECRET_DIGITS = 43;
const CHECKSUM_DIGITS = 6;
const FORM = new RegExp(`^(cb_live_\\w{${ID_DIGITS}}_\\w{${SECRET_DIGITS}})_(\\w{${CHECKSUM_DIGITS}})$`);
const BEGINNING = new RegExp(`^\\s*cb_live_([0-9A-Za-z]{${ID_DIGITS}})_`);

/** A new random key. */
export function generateApiKey(): ApiKey {
  const id = base62(randomBytes(ID_BYTES), ID_DIGITS);
  const body = `cb_live_${id}_${base62(randomBytes(SECRET_BYTES), SECRET_DIGITS)}`;
  return { id, text: `${body}_${checksum(body)}` };
}

/** Checks the form and checksum of a key, so that typing errors are found without the database. */
export function isWellFormedKey(text: string): boolean {
  const match = FORM.exec(text);
  return match?.[1] !== undefined && checksum(match[1]) === match[2];
}

/** The id in a text that is a whole key or the beginning of one, so that messages repeat nothing secret; undefined for any other text. */
export const idInKey = (text: string): string | undefined => BEGINNING.exec(text)?.[1];

/** The value under which a key is stored: HMAC-SHA256 with the current pepper. */
export function lookupOf(text: string, { pepper }: { pepper: Buffer }): Buffer {
  return createHmac('sha256', pepper).update(text).digest();
}

/** Every value under which the key may be stored: one for each secret. */
export function lookupsOf(text: string, ring: KeyRing): Buffer[] {
  return [ring, ...ring.former].map((keys) => lookupOf(text, keys));
}

export function encryptKey(text: string, owner: KeyOwner, ring: KeyRing): Sealed {
  return seal(Buffer.from(text), rowOf(owner), ring);
}

/** The key's text. @throws Fault as `unseal` does. */
export function decryptKey(sealed: Sealed, owner: KeyOwner, ring: KeyRing): string {
  return unseal(sealed, rowOf(owner), ring).toString('utf8');
}

const rowOf = ({ keyId, watcherId }: KeyOwner) => `${keyId}|${watcherId}`;

function checksum(body: string): string {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(crc32(body));
  return base62(bytes, CHECKSUM_DIGITS);
}

/** Bytes as a base-62 number, padded to `length` digits. `length` must suffice for the largest value. */
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
