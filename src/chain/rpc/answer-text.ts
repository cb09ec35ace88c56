/**
 * Reads a node's answers within limits, because the node decides what it sends: of each answer, of all that are under way, and of the
 * time and memory that its values take when they are parsed.
 */
import { createStringCutter, createValueCounter } from '../../core/json-values.ts';

const MEBIBYTE = 1024 * 1024;

/** All answers of a node that are under way. */
const UNDER_WAY_BYTES_MAX = 512 * MEBIBYTE;
/** Up to this size, the values of an answer don't matter: 128 KiB of `[],` hold the event loop for 0.04 s, and of `[` for 0.15 s. */
const UNCOUNTED_BYTES_MAX = 128 * 1024;
/**
 * Traces list each call's place in the tree as numbers: 1,024 for the deepest call. So many hold the event loop for a second when the
 * calls are read.
 */
const NUMBERS_MAX = 8 * 1024 * 1024;
const NUMBER_BYTES_MIN = 2;
/** Far more than blocks, receipts and traces have. Once parsed, an object with a key that no other has takes up to 14 times its text. */
const NEW_KEYS_MAX = 100_000;
/**
 * Traces repeat the input of each call, so a cheap transaction can make them gigabytes long. Chainbell needs no more of a string in a
 * trace than a hash or the beginning of an error.
 */
export const TRACE_STRING_BYTES_MAX = 128;
/** A node in the same network (1 Gbit/s) sends so much of a trace in the 30 s after which a request fails. */
const READ_BYTES_MAX = 4 * 1024 * MEBIBYTE;

type Allowance = {
  /** Bytes that are kept. */
  bytesMax: number;
  /** With fewer bytes than this per value, as in `[[],[]]`, an answer takes many times the time and memory of its text. */
  valueBytesMin: number;
};

/** The largest answer with blocks, receipts or traces: some 50 traced mainnet blocks. Their values take 40 bytes on average. */
const OF_BLOCKS: Allowance = { bytesMax: 256 * MEBIBYTE, valueBytesMin: 12 };
/**
 * The largest of any other method: the hashes of 120,000 transactions in a header. Some nodes put whole transactions into a header, of 33
 * bytes per value or more.
 */
const OF_OTHERS: Allowance = { bytesMax: 8 * MEBIBYTE, valueBytesMin: 24 };
/** Ample, because instead of a result of some bytes a proxy may send a page that explains an error. */
const SHORT_BYTES_MAX = 128 * 1024;

const BLOCK_METHOD = /^eth_getBlockBy/;
const BULKY_METHOD = /^eth_get(Block|Transaction)Receipt|trace/;
const TRACE_METHOD = /trace/;
const SHORT_METHOD = /^(eth_(chainId|blockNumber|getBalance|call)|web3_clientVersion)$/;

/** Thrown while an answer is read. */
export class TooLarge extends Error {}

type Call = { method: string; params: readonly unknown[] };

/** Called with the size of each piece of an answer as it arrives, without the part of a trace that isn't kept. */
export type OnBytes = (bytes: number) => void;

/** Reads the answers of one node. */
type AnswerReader = (
  answer: AsyncIterable<Uint8Array>,
  options: { calls: readonly Call[]; onBytes: OnBytes },
) => Promise<string>;

/**
 * @returns a reader that throws TooLarge, and then reads no further. In an answer that has only traces, it keeps only the beginning
 * of long strings.
 */
export function createAnswerReader(): AnswerReader {
  let underWay = 0;
  return async (answer, { calls, onBytes }) => {
    const { bytesMax, valueBytesMin } = allowanceOf(calls);
    const shorten = calls.every(isTrace) ? createStringCutter(TRACE_STRING_BYTES_MAX) : undefined;
    const pieces: Uint8Array[] = [];
    const count = createValueCounter();
    let [readBytes, bytes, counted, numbers, others, newKeys] = [0, 0, 0, 0, 0, 0];
    const release = () => {
      underWay -= bytes;
      bytes = 0;
    };
    /** Leaves its room to others at once, not only when the node's connection is closed. */
    const refuse = (how: string): never => {
      release();
      throw tooLarge(how, calls.some(isTrace));
    };
    try {
      for await (const given of answer) {
        readBytes += given.length;
        if (readBytes > READ_BYTES_MAX) refuse(`is larger than ${sizeText(READ_BYTES_MAX)}`);
        const piece = shorten?.(given) ?? given;
        pieces.push(piece);
        bytes += piece.length;
        underWay += piece.length;
        onBytes(piece.length);
        if (bytes > bytesMax) refuse(`is larger than ${sizeText(bytesMax)}`);
        if (underWay > UNDER_WAY_BYTES_MAX)
          refuse(`and others under way are larger than ${sizeText(UNDER_WAY_BYTES_MAX)}`);
        if (bytes <= UNCOUNTED_BYTES_MAX) continue;
        for (const uncounted of pieces.slice(counted)) {
          const values = count(uncounted);
          numbers += values.numbers;
          others += values.others;
          newKeys += values.newKeys;
        }
        counted = pieces.length;
        if (numbers > NUMBERS_MAX) refuse(`has more than ${NUMBERS_MAX} numbers in lists`);
        if (newKeys > NEW_KEYS_MAX) refuse(`has more than ${NEW_KEYS_MAX} different keys`);
        if (others * valueBytesMin + numbers * NUMBER_BYTES_MIN > bytes)
          refuse(`has more than one value in ${valueBytesMin} bytes`);
      }
      return new TextDecoder().decode(Buffer.concat(pieces));
    } finally {
      release();
    }
  };
}

function allowanceOf(calls: readonly Call[]): Allowance {
  if (calls.some(isBulky)) return OF_BLOCKS;
  if (!calls.every(({ method }) => SHORT_METHOD.test(method))) return OF_OTHERS;
  const bytes = calls.reduce((sum, call) => sum + SHORT_BYTES_MAX + inputLength(call), 0);
  return { ...OF_OTHERS, bytesMax: Math.min(bytes, OF_OTHERS.bytesMax) };
}

/** The input of a contract call. For a long one, Multicall3 returns less than that. */
function inputLength({ params: [call] }: Call): number {
  const data: unknown = Object(call).data;
  return typeof data === 'string' ? data.length : 0;
}

/** Whether the answer has receipts, traces or a block with whole transactions, not only a header with their hashes. */
const isBulky = ({ method, params }: Call) =>
  BULKY_METHOD.test(method) || (BLOCK_METHOD.test(method) && params[1] !== false);

const isTrace = ({ method }: Call) => TRACE_METHOD.test(method);

const sizeText = (bytes: number) =>
  bytes < MEBIBYTE ? `${Math.round(bytes / 1024)} KiB` : `${Number((bytes / MEBIBYTE).toFixed(1))} MiB`;

const tooLarge = (how: string, hasTraces: boolean) =>
  new TooLarge(
    `the answer ${how}${hasTraces ? '. With chain.internalTransfers: off, Chainbell goes on without traces' : ''}`,
  );
