/**
 * Counts the values in JSON before it is parsed, because parsing holds the event loop and its time depends on their number: 4 MiB of
 * long strings take 2 ms, and 4 MiB of `[],` 140 ms, or 1.5 s with a reviver. Also shortens long strings before they fill the memory.
 */
import { randomInt } from 'node:crypto';

/**
 * `numbers` are those in arrays. They take less time and memory than others. `newKeys` are keys of objects that differ from all before.
 * An object with such a key takes 180 bytes once it is parsed, and 4 µs, because its shape is stored too (Node 24).
 */
type ValueCount = { numbers: number; others: number; newKeys: number };

const [QUOTE, BACKSLASH, COMMA, COLON, BRACKET, BRACE, LETTER_U] = Buffer.from('"\\,:[{u');
const isDigit = (byte: number | undefined) => byte !== undefined && byte >= 48 && byte <= 57;

/**
 * Returns a function that takes the next piece of the text and returns how many values it begins. Each value follows one of three
 * characters outside strings, which contracts can fill with these. It takes 1 to 2 ms per MiB.
 */
export function createValueCounter(): (piece: Uint8Array) => ValueCount {
  let isInString = false;
  let isEscaped = false;
  const isNew = createNewKeys();
  return (piece) => {
    let [numbers, others, newKeys] = [0, 0, 0];
    /** The last string in this piece. It began in an earlier one while `from` is -1. */
    let [from, to] = [-1, -1];
    for (let at = 0; at < piece.length; at += 1) {
      let byte = piece[at];
      if (isEscaped) isEscaped = false;
      else if (isInString) {
        // Most of an answer is long strings, so this loop makes the count twice as fast.
        for (; byte !== QUOTE && byte !== BACKSLASH && at < piece.length; byte = piece[at]) at += 1;
        isEscaped = byte === BACKSLASH;
        isInString = byte !== QUOTE;
        to = at;
      } else if (byte === QUOTE) {
        isInString = true;
        from = at + 1;
      } else if (byte === COLON) {
        // Pieces are so large that few keys begin in another one, and these count as new.
        if (from === -1 || isNew(piece, from, to)) newKeys += 1;
      } else if (byte === COMMA || byte === BRACKET || byte === BRACE) {
        if (isDigit(piece[at + 1])) numbers += 1;
        else others += 1;
      }
    }
    return { numbers, others, newKeys };
  };
}

/** Blocks, receipts and traces have fewer than 100 different keys. */
const KEYS_KNOWN_MAX = 512;
const SLOTS = 2 * KEYS_KNOWN_MAX;

/** Whether a key differs from all before it. Beyond KEYS_KNOWN_MAX different ones, each key that is not one of them counts as new. */
function createNewKeys(): (piece: Uint8Array, from: number, to: number) => boolean {
  let seed: number | undefined;
  /** Hashes with open addressing; 0 is a free slot. */
  let hashes: Uint32Array | undefined;
  let known = 0;
  return (piece, from, to) => {
    // With a known one, a node could choose keys with equal hashes. The shift lets all of its bits take part.
    seed ??= randomInt(2 ** 32);
    hashes ??= new Uint32Array(SLOTS);
    let hash = seed;
    for (let at = from; at < to; at += 1) {
      hash = Math.imul(hash ^ (piece[at] ?? 0), 0x0100_0193);
      hash ^= hash >>> 15;
    }
    hash = (hash | 1) >>> 0;
    let slot = (hash >>> 16) % SLOTS;
    for (; hashes[slot] !== 0; slot = (slot + 1) % SLOTS) if (hashes[slot] === hash) return false;
    if (known < KEYS_KNOWN_MAX) {
      hashes[slot] = hash;
      known += 1;
    }
    return true;
  };
}

/** The byte after a backslash is not seen yet, so the length of the escape sequence is unknown. */
const ESCAPE_BEGUN = -1;
/** A backslash and `u` are followed by this many digits. */
const ESCAPE_DIGITS = 4;
const ELLIPSIS = Buffer.from('…');

/**
 * Returns a function that takes the next piece of the text and returns it with only the first `bytesMax` bytes of each string, and an
 * ellipsis after a shortened one. An escape sequence is never split, so the text remains JSON.
 */
export function createStringCutter(bytesMax: number): (piece: Uint8Array) => Uint8Array {
  let isInString = false;
  let isCut = false;
  /** Bytes of the string that may still be kept. */
  let room = 0;
  /** Bytes that the escape sequence still needs, or ESCAPE_BEGUN. */
  let escapeBytes = 0;

  function passEscape(byte: number | undefined): void {
    if (escapeBytes > 0) escapeBytes -= 1;
    else escapeBytes = byte === LETTER_U ? ESCAPE_DIGITS : 0;
    room -= 1;
  }

  return (piece) => {
    const kept: Uint8Array[] = [];
    let from = 0;
    for (let at = 0; at < piece.length; at += 1) {
      if (!isInString) {
        while (at < piece.length && piece[at] !== QUOTE) at += 1;
        isInString = at < piece.length;
        room = bytesMax;
        continue;
      }
      if (escapeBytes !== 0) {
        passEscape(piece[at]);
        continue;
      }
      const begin = at;
      const end = isCut ? piece.length : Math.min(piece.length, at + Math.max(0, room));
      while (at < end && piece[at] !== QUOTE && piece[at] !== BACKSLASH) at += 1;
      room -= at - begin;
      if (at === piece.length) break;
      if (piece[at] === QUOTE) {
        if (isCut) from = at;
        isCut = false;
        isInString = false;
        continue;
      }
      if (!isCut && room <= 0) {
        isCut = true;
        kept.push(piece.subarray(from, at), ELLIPSIS);
      }
      if (piece[at] === BACKSLASH) escapeBytes = ESCAPE_BEGUN;
      room -= 1;
    }
    if (!isCut) kept.push(piece.subarray(from));
    // A part would keep the whole piece in memory, so it is copied.
    return kept[0]?.length === piece.length ? piece : Buffer.concat(kept);
  };
}
