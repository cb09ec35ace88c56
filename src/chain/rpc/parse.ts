/**
 * Parses a node's JSON into typed values. No other file does. Each function throws a Fault `inconsistent` if the
 * JSON doesn't have the expected form.
 */
import { Fault } from '../../core/fault.ts';
import type { Address, Hash, Hex } from '../../core/hex.ts';
import { isRecord } from '../../core/json.ts';
import type { BlockHeader } from '../../domain/block.ts';

export type ChainLog = { address: Address; topics: Hash[]; data: Hex };

export type ChainTransaction = {
  hash: Hash;
  from: Address;
  /** `creation` without a receiver. Undefined if a transaction of an unknown type lacks the field. */
  to: Address | 'creation' | undefined;
  /** Wei. Undefined if a transaction of an unknown type lacks the field. */
  value: bigint | undefined;
};

export type ChainReceipt = {
  transactionHash: Hash;
  blockHash: Hash;
  /** The sender and receiver as the receipt repeats them. Undefined if it doesn't. */
  from: Address | undefined;
  to: Address | undefined;
  /** Undefined before Byzantium (EIP-658). */
  status: 0 | 1 | undefined;
  logs: ChainLog[];
};

export type ChainBlock = { header: BlockHeader; transactions: ChainTransaction[] };

/** Source: execution-apis, schema `Block`. @throws Fault `inconsistent` */
export function parseHeader(json: unknown): BlockHeader {
  const block = record(json, 'block');
  return {
    number: quantity(block.number, 'block.number'),
    hash: hash(block.hash, 'block.hash'),
    parentHash: hash(block.parentHash, 'block.parentHash'),
    minedAt: time(block.timestamp, 'block.timestamp'),
  };
}

/** A block with its full transactions. @throws Fault `inconsistent` */
export function parseBlock(json: unknown): ChainBlock {
  const transactions = list(record(json, 'block').transactions, 'block.transactions');
  return { header: parseHeader(json), transactions: transactions.map(parseTransaction) };
}

function parseTransaction(json: unknown): ChainTransaction {
  const transaction = record(json, 'transaction');
  const { to, value } = transaction;
  // Only types that the chain itself defines may lack these fields. For Ethereum's types, a missing `to` is a
  // creation and a missing value is a Fault.
  const isOwn = typeOf(transaction) > TYPE_MAX;
  return {
    hash: hash(transaction.hash, 'transaction.hash'),
    from: address(transaction.from, 'transaction.from'),
    to: isOwn && to === undefined ? undefined : (optionalAddress(to, 'transaction.to') ?? 'creation'),
    value: isOwn && (value === undefined || value === null) ? undefined : amount(value, 'transaction.value'),
  };
}

/** The newest transaction type of Ethereum (EIP-7702). A chain itself defines any higher type. */
export const TYPE_MAX = 4;

/** Old nodes give no type, because all transactions were of type 0. NaN for what is no type: it has no encoding. */
export function typeOf({ type }: Record<string, unknown>): number {
  if (type === undefined || type === null) return 0;
  // Number() calls methods of objects, which a node's answer may lack.
  return typeof type === 'string' || typeof type === 'number' ? Number(type) : Number.NaN;
}

/** Source: execution-apis, schema `ReceiptInfo`. @throws Fault `inconsistent` */
export function parseReceipt(json: unknown): ChainReceipt {
  const receipt = record(json, 'receipt');
  const status = receipt.status ?? undefined;
  return {
    transactionHash: hash(receipt.transactionHash, 'receipt.transactionHash'),
    blockHash: hash(receipt.blockHash, 'receipt.blockHash'),
    from: optionalAddress(receipt.from, 'receipt.from'),
    to: optionalAddress(receipt.to, 'receipt.to'),
    status: status === undefined ? undefined : quantity(status, 'receipt.status') === 1 ? 1 : 0,
    logs: list(receipt.logs, 'receipt.logs').map(parseLog),
  };
}

function parseLog(json: unknown): ChainLog {
  const log = record(json, 'log');
  return {
    address: address(log.address, 'log.address'),
    topics: list(log.topics, 'log.topics').map((topic) => hash(topic, 'log.topics')),
    data: hex(log.data, 'log.data'),
  };
}

/** @throws Fault `inconsistent` unless it is an array */
export function list(value: unknown, what: string): unknown[] {
  if (!Array.isArray(value)) throw refuse(what, 'an array', value);
  return value;
}

/** @throws Fault `inconsistent` unless it is an object */
export function record(value: unknown, what: string): Record<string, unknown> {
  if (!isRecord(value)) throw refuse(what, 'an object', value);
  return value;
}

/** A 256-bit quantity. @throws Fault `inconsistent` */
export function amount(value: unknown, what: string): bigint {
  if (typeof value !== 'string' || !/^0x[0-9a-fA-F]{1,64}$/.test(value))
    throw refuse(what, 'a quantity', value);
  return BigInt(value);
}

/** A quantity below 2^53, as hex or (in some trace answers) as a JSON number. @throws Fault `inconsistent` */
export function quantity(value: unknown, what: string): number {
  const number = typeof value === 'number' ? value : Number(amount(value, what));
  if (!Number.isSafeInteger(number) || number < 0) throw refuse(what, 'a quantity below 2^53', value);
  return number;
}

/** Seconds since 1970, in years that databases and JavaScript write with four digits. */
function time(value: unknown, what: string): Date {
  const date = new Date(quantity(value, what) * 1000);
  if (!(date.getUTCFullYear() <= 9999)) throw refuse(what, 'a time', value);
  return date;
}

/** @throws Fault `inconsistent` unless it is 20 bytes of hex */
export function address(value: unknown, what: string): Address {
  return sized(value, 42, what, 'an address');
}

const optionalAddress = (value: unknown, what: string) =>
  value === undefined || value === null ? undefined : address(value, what);

function hash(value: unknown, what: string): Hash {
  return sized(value, 66, what, 'a hash');
}

function sized(value: unknown, length: number, what: string, kind: string): Hex {
  const text = hex(value, what);
  if (text.length !== length) throw refuse(what, kind, value);
  return text;
}

function hex(value: unknown, what: string): Hex {
  if (typeof value !== 'string') throw refuse(what, 'hex', value);
  // Nearly all nodes give lower case, which needs no copy.
  if (isLowerHex(value)) return value;
  const lower = value.toLowerCase();
  if (!isLowerHex(lower) || !value.startsWith('0x')) throw refuse(what, 'hex', value);
  return lower;
}

/** Characters of a wrong value that a message shows. */
const SHOWN_MAX = 80;

/**
 * Shortens a node's text for a message, before a word begins. Nodes repeat their URL, and a cut key would not be
 * recognized and redacted.
 */
export function excerptOf(text: string, charactersMax = SHOWN_MAX): string {
  if (text.length <= charactersMax) return text;
  const cut = text.slice(0, charactersMax);
  return /^"?0x/.test(cut) ? cut : `${cut.replace(/[^\s/?&=:@]*$/, '')}…`;
}

const isLowerHex = (text: string): text is Hex => /^0x[0-9a-f]*$/.test(text);

function refuse(what: string, wanted: string, value: unknown): Fault {
  if (value === undefined) return new Fault('inconsistent', `the node's ${what} is missing`);
  // The contents may be huge, or nested more deeply than JSON.stringify can follow.
  const shown = Array.isArray(value)
    ? 'an array'
    : isRecord(value)
      ? 'an object'
      : excerptOf(String(JSON.stringify(value)));
  return new Fault('inconsistent', `the node's ${what} is not ${wanted}: ${shown}`);
}
