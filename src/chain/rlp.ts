/**
 * Recursive length prefix, encoding only: what Ethereum hashes is written in it.
 */
import { Fault } from '../core/fault.ts';

/** Bytes, the same as `0x` text (as a node's JSON has them), or a list of items. */
export type RlpItem = string | Uint8Array | readonly RlpItem[];

/** The item's encoding. Source: yellow paper, appendix B. @throws Fault `inconsistent` for text that is not hex bytes. */
export function encodeRlp(item: RlpItem): Buffer {
  const buffer = Buffer.allocUnsafe(encodedBytes(item));
  write(item, buffer, 0);
  return buffer;
}

/** How long the item's encoding is. */
export function encodedBytes(item: RlpItem): number {
  const bytes = contentBytes(item);
  return isSingle(item, bytes) ? 1 : prefixBytes(bytes) + bytes;
}

/** A quantity of JSON-RPC as RLP has numbers: without leading zeros, zero being no bytes at all. */
export function quantityItem(text: string): string {
  if (!text.startsWith('0x')) throw new Fault('inconsistent', `${shorten(text)} is not a quantity`);
  let start = 2;
  while (text[start] === '0') start += 1;
  const digits = text.slice(start);
  return digits.length % 2 === 0 ? `0x${digits}` : `0x0${digits}`;
}

/** Writes the item at the offset; where its encoding ends. */
function write(item: RlpItem, buffer: Buffer, offset: number): number {
  const bytes = contentBytes(item);
  const isList = typeof item !== 'string' && !(item instanceof Uint8Array);
  let end = isSingle(item, bytes) ? offset : writePrefix(bytes, isList ? 0xc0 : 0x80, buffer, offset);
  if (isList) {
    for (const part of item) end = write(part, buffer, end);
    return end;
  }
  if (typeof item !== 'string') buffer.set(item, end);
  // Stops at the first character that is not hex.
  else if (buffer.write(item.slice(2), end, 'hex') !== bytes)
    throw new Fault('inconsistent', `${shorten(item)} is not hex`);
  return end + bytes;
}

function contentBytes(item: RlpItem): number {
  if (typeof item === 'string') {
    if (item.length % 2 === 1 || !item.startsWith('0x'))
      throw new Fault('inconsistent', `${shorten(item)} is not hex`);
    return (item.length - 2) / 2;
  }
  if (item instanceof Uint8Array) return item.length;
  let bytes = 0;
  for (const part of item) bytes += encodedBytes(part);
  return bytes;
}

/** One byte below 0x80 is its own encoding. */
function isSingle(item: RlpItem, bytes: number): boolean {
  if (bytes !== 1) return false;
  if (typeof item === 'string') return item.charCodeAt(2) < EIGHT;
  return item instanceof Uint8Array && (item[0] ?? EIGHT) < 0x80;
}

/** The character code of '8': a first digit below it is a byte below 0x80. */
const EIGHT = 0x38;
/** Contents up to this length have it in the prefix itself. */
const SHORT_BYTES_MAX = 55;

function prefixBytes(bytes: number): number {
  return bytes <= SHORT_BYTES_MAX ? 1 : 1 + lengthBytes(bytes);
}

function lengthBytes(bytes: number): number {
  return bytes < 0x100 ? 1 : bytes < 0x10000 ? 2 : bytes < 0x1000000 ? 3 : 4;
}

function writePrefix(bytes: number, base: number, buffer: Buffer, offset: number): number {
  if (bytes <= SHORT_BYTES_MAX) return buffer.writeUInt8(base + bytes, offset);
  const size = lengthBytes(bytes);
  buffer.writeUInt8(base + SHORT_BYTES_MAX + size, offset);
  return buffer.writeUIntBE(bytes, offset + 1, size);
}

/** Characters of a wrong value in a message. */
const SHOWN_MAX = 40;
const shorten = (text: string) => text.slice(0, SHOWN_MAX);
