/**
 * Recursive length prefix (RLP), the encoding of everything that Ethereum hashes. The reading functions trust
 * their input, so they are only for encodings that this file wrote.
 */
import { Fault } from '../../core/fault.ts';

/** Bytes, `0x` text that stands for bytes (as in a node's JSON), or a list of items. */
export type RlpItem = string | Uint8Array | readonly RlpItem[];

/**
 * Encodes the item. Source: yellow paper, appendix B.
 * @throws Fault `inconsistent` for text that is not hex bytes.
 */
export function encodeRlp(item: RlpItem): Buffer {
  const buffer = Buffer.allocUnsafe(roomFor(item));
  return buffer.subarray(writeBefore(buffer.length, item, buffer));
}

/** Turns a JSON-RPC quantity into a number in RLP's form: no leading zeros, and zero is empty. */
export function quantityItem(text: string): string {
  if (!text.startsWith('0x')) throw new Fault('inconsistent', `${shorten(text)} is not a quantity`);
  let start = 2;
  while (text.charCodeAt(start) === ZERO) start += 1;
  const digits = text.slice(start);
  return digits.length % 2 === 0 ? `0x${digits}` : `0x0${digits}`;
}

/** Encodes a list whose items are already encoded, one after the other. */
export function wrapList(items: Uint8Array): Buffer {
  const buffer = Buffer.allocUnsafe(items.length + PREFIX_BYTES_MAX);
  const end = buffer.length;
  buffer.set(items, end - items.length);
  return buffer.subarray(writePrefix(end - items.length, 0xc0, items.length, buffer));
}

/** An item of a list: `start` is where its prefix begins, `content` leaves the prefix out. */
type ListItem = { start: number; content: Uint8Array };

/** Reads the items of an encoded list. Nested lists stay encoded. */
export function readList(list: Uint8Array): ListItem[] {
  const items: ListItem[] = [];
  let { start } = contentAt(list, 0);
  while (start < list.length) {
    const content = contentAt(list, start);
    items.push({ start, content: list.subarray(content.start, content.end) });
    start = content.end;
  }
  return items;
}

/** The first byte of the content of the item at this byte, and the byte after its last. */
function contentAt(bytes: Uint8Array, at: number): { start: number; end: number } {
  const prefix = bytes[at] ?? 0;
  if (prefix < 0x80) return { start: at, end: at + 1 };
  const length = prefix - (prefix < 0xc0 ? 0x80 : 0xc0);
  if (length <= SHORT_BYTES_MAX) return { start: at + 1, end: at + 1 + length };
  const start = at + 1 + length - SHORT_BYTES_MAX;
  const long = bytes.subarray(at + 1, start).reduce((sum, byte) => sum * 256 + byte, 0);
  return { start, end: start + long };
}

/** An upper bound of the encoding's length in bytes. */
function roomFor(item: RlpItem): number {
  if (typeof item === 'string') return (item.length >> 1) + PREFIX_BYTES_MAX;
  if (item instanceof Uint8Array) return item.length + PREFIX_BYTES_MAX;
  let bytes = PREFIX_BYTES_MAX;
  for (const part of item) bytes += roomFor(part);
  return bytes;
}

/**
 * Writes the item so that it ends before `end`, and returns where it begins. Writing goes backwards, because a
 * prefix contains the length of the content after it.
 */
function writeBefore(end: number, item: RlpItem, buffer: Buffer): number {
  if (typeof item === 'string') {
    const bytes = (item.length - 2) / 2;
    const start = end - bytes;
    const isText = Number.isInteger(bytes) && item.startsWith('0x');
    // `write` stops at the first character that is not hex.
    if (!isText || buffer.write(item.slice(2), start, 'hex') !== bytes)
      throw new Fault('inconsistent', `${shorten(item)} is not hex`);
    return isSingle(buffer, start, bytes) ? start : writePrefix(start, 0x80, bytes, buffer);
  }
  if (item instanceof Uint8Array) {
    const start = end - item.length;
    buffer.set(item, start);
    return isSingle(buffer, start, item.length) ? start : writePrefix(start, 0x80, item.length, buffer);
  }
  let start = end;
  for (let index = item.length - 1; index >= 0; index -= 1)
    start = writeBefore(start, item[index] ?? '0x', buffer);
  return writePrefix(start, 0xc0, end - start, buffer);
}

/** A single byte below 0x80 is its own encoding. */
function isSingle(buffer: Buffer, start: number, bytes: number): boolean {
  return bytes === 1 && (buffer[start] ?? 0x80) < 0x80;
}

/** The prefix itself holds a length up to this one. Longer lengths follow the prefix. */
const SHORT_BYTES_MAX = 55;
/** One byte for the size of the length, and up to four for the length. */
const PREFIX_BYTES_MAX = 5;
const ZERO = '0'.charCodeAt(0);

/** Writes the prefix for this many bytes of content so that it ends before `end`. Returns where it begins. */
function writePrefix(end: number, base: number, bytes: number, buffer: Buffer): number {
  if (bytes <= SHORT_BYTES_MAX) {
    buffer[end - 1] = base + bytes;
    return end - 1;
  }
  let start = end;
  for (let rest = bytes; rest > 0; rest = Math.floor(rest / 256)) {
    start -= 1;
    buffer[start] = rest % 256;
  }
  buffer[start - 1] = base + SHORT_BYTES_MAX + (end - start);
  return start - 1;
}

/** A message quotes at most this many characters of a wrong value. */
const SHOWN_MAX = 40;
const shorten = (text: string) => text.slice(0, SHOWN_MAX);
