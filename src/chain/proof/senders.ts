/**
 * Recovers the sender of a transaction from its signature. No hash covers `from`, but the transactions root
 * covers the signature, so a node can't change both.
 */
import { instantiateSecp256k1 } from '@bitauth/libauth/build/lib/crypto/secp256k1.js';
import { type Address, fromBytes } from '../../core/hex.ts';
import { optimizedWasm } from '../../core/wasm.ts';
import { TYPE_MAX } from '../rpc/parse.ts';
import { keccak256 } from './keccak.ts';
import { encodeRlp, quantityItem, readList, wrapList } from './rlp.ts';

/** A valid one: r is the x coordinate of the curve's generator, s is 1. */
const SOME_SIGNATURE = Buffer.from(
  `79be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798${'1'.padStart(64, '0')}`,
  'hex',
);
const SOME_HASH = new Uint8Array(32).fill(1);

/** libsecp256k1 in WebAssembly. Importing only its file saves each thread 16 MiB over the whole library. */
const curve = await optimizedWasm(instantiateSecp256k1, ({ recoverPublicKeyUncompressed: recover }) =>
  recover(SOME_SIGNATURE, 0, SOME_HASH),
);

const ADDRESS_BYTES = 20;
const WORD_BYTES = 32;
/** The last three items of every signed transaction: v or yParity, r, s. */
const SIGNATURE_ITEMS = 3;
/** The lowest `v` of a legacy transaction without and with a chain id (EIP-155). */
const V_PLAIN = 27n;
const V_OF_CHAIN = 35n;

/**
 * Recovers the signer of a transaction of type 0 (with or without EIP-155) to 4. `encoded` is the transaction as
 * it was signed and mined (`encodeTransaction`). Undefined if the signature is invalid.
 * Source: yellow paper, appendix F.
 */
export function recoverSender(encoded: Uint8Array): Address | undefined {
  const [type = 0] = encoded;
  // A legacy transaction is an RLP list without a type, so its first byte is far above all types.
  const isTyped = type <= TYPE_MAX;
  const list = isTyped ? encoded.subarray(1) : encoded;
  const items = readList(list);
  const [v, r, s] = items.slice(-SIGNATURE_ITEMS);
  const [first] = items;
  if (first === undefined || v === undefined || r === undefined || s === undefined) return undefined;
  const parity = isTyped ? typedParity(v.content) : legacyParity(v.content);
  if (parity === undefined || r.content.length > WORD_BYTES || s.content.length > WORD_BYTES)
    return undefined;
  const signature = new Uint8Array(2 * WORD_BYTES);
  signature.set(r.content, WORD_BYTES - r.content.length);
  signature.set(s.content, 2 * WORD_BYTES - s.content.length);
  // The signature covers everything before it, in the list's encoding.
  const signed = wrapList(Buffer.concat([list.subarray(first.start, v.start), parity.suffix]));
  const payload = isTyped ? Buffer.concat([Buffer.of(type), signed]) : signed;
  const key = curve.recoverPublicKeyUncompressed(signature, parity.id, keccak256(payload));
  // A string is an error message: r or s is out of range, or r belongs to no point of the curve.
  if (typeof key === 'string') return undefined;
  // Skip the first byte, which only marks the key as uncompressed.
  return fromBytes(keccak256(key.subarray(1)).subarray(-ADDRESS_BYTES));
}

/** `id` selects one of two possible keys. `suffix` holds the signed bytes after the fields. */
type Parity = { id: 0 | 1; suffix: Uint8Array };

const NOTHING = new Uint8Array();

function typedParity(yParity: Uint8Array): Parity | undefined {
  if (yParity.length === 0) return { id: 0, suffix: NOTHING };
  return yParity.length === 1 && yParity[0] === 1 ? { id: 1, suffix: NOTHING } : undefined;
}

/** In EIP-155, v is 35 + 2 * chain id + parity. The signed data ends with the chain id and two empty items. */
function legacyParity(content: Uint8Array): Parity | undefined {
  const v = content.length === 0 ? 0n : BigInt(fromBytes(content));
  if (v === V_PLAIN || v === V_PLAIN + 1n) return { id: v === V_PLAIN ? 0 : 1, suffix: NOTHING };
  if (v < V_OF_CHAIN) return undefined;
  const chainId = quantityItem(`0x${((v - V_OF_CHAIN) / 2n).toString(16)}`);
  const suffix = Buffer.concat([chainId, '0x', '0x'].map((item) => encodeRlp(item)));
  return { id: (v - V_OF_CHAIN) % 2n === 0n ? 0 : 1, suffix };
}
