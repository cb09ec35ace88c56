/**
 * Reads a node's answers within limits, because the node decides what it sends: of each answer, of all that are under way, and of the
 * memory that its values take once they are parsed.
 */
import { createValueCounter } from '../../core/json-values.ts';

const MEBIBYTE = 1024 * 1024;

/** The largest answer with blocks, receipts or traces: some 50 traced mainnet blocks. */
const BLOCK_BYTES_MAX = 256 * MEBIBYTE;
/** The largest of any other method. */
const OTHER_BYTES_MAX = 16 * MEBIBYTE;
/** All answers of a node that are under way. */
const UNDER_WAY_BYTES_MAX = 512 * MEBIBYTE;
/** Up to this size, the values of an answer don't matter. */
const UNCOUNTED_BYTES_MAX = 16 * MEBIBYTE;
/** A value of a block takes 20 bytes or more. With less than this, as in `[[],[]]`, the values need ten times the memory of the text. */
const VALUE_BYTES_MIN = 12;

const OF_BLOCKS = /^eth_get(Block|TransactionReceipt)|trace/;

/** Thrown while an answer is read. */
export class TooLarge extends Error {}

/** Called with the size of each piece of an answer as it arrives. */
export type OnBytes = (bytes: number) => void;

/** Reads the answers of one node. */
type AnswerReader = (
  answer: AsyncIterable<Uint8Array>,
  options: { methods: readonly string[]; onBytes: OnBytes },
) => Promise<string>;

/** @returns a reader that throws TooLarge, and then reads no further */
export function createAnswerReader(): AnswerReader {
  let underWay = 0;
  return async (answer, { methods, onBytes }) => {
    const bytesMax = methods.some((method) => OF_BLOCKS.test(method)) ? BLOCK_BYTES_MAX : OTHER_BYTES_MAX;
    const pieces: Uint8Array[] = [];
    const count = createValueCounter();
    let [bytes, counted, values] = [0, 0, 0];
    const release = () => {
      underWay -= bytes;
      bytes = 0;
    };
    /** Leaves its room to others at once, not only when the node's connection is closed. */
    const refuse = (how: string): never => {
      release();
      throw tooLarge(how);
    };
    try {
      for await (const piece of answer) {
        pieces.push(piece);
        bytes += piece.length;
        underWay += piece.length;
        onBytes(piece.length);
        if (bytes > bytesMax) refuse(`is larger than ${bytesMax / MEBIBYTE} MiB`);
        if (underWay > UNDER_WAY_BYTES_MAX)
          refuse(`and others under way are larger than ${UNDER_WAY_BYTES_MAX / MEBIBYTE} MiB`);
        if (bytes <= UNCOUNTED_BYTES_MAX) continue;
        for (const uncounted of pieces.slice(counted)) values += count(uncounted);
        counted = pieces.length;
        if (values * VALUE_BYTES_MIN > bytes) refuse(`has more than one value in ${VALUE_BYTES_MIN} bytes`);
      }
      return new TextDecoder().decode(Buffer.concat(pieces));
    } finally {
      release();
    }
  };
}

/** A contract can make its traces large: each call repeats its input. */
const tooLarge = (how: string) =>
  new TooLarge(
    `the answer ${how}. If it is a trace, Chainbell goes on without traces with chain.internalTransfers: off`,
  );
