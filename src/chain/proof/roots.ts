/**
 * Computes the hashes and roots of a block, and encodes its parts, from the node's JSON.
 */
import { Fault } from '../../core/fault.ts';
import { fromBytes, type Hash } from '../../core/hex.ts';
import { list, record, TYPE_MAX, typeOf } from '../rpc/parse.ts';
import { keccak256 } from './keccak.ts';
import { encodeRlp, quantityItem, type RlpItem } from './rlp.ts';
import { listRoot } from './trie.ts';

type Json = Record<string, unknown>;

/**
 * The hash of the header's fields, for every hard fork so far. Source: EIP-1559, 4895, 4844, 4788, 7685.
 * @throws Fault `inconsistent`.
 */
export function headerHash(block: Json): Hash {
  const fields: RlpItem[] = [
    ...[
      'parentHash',
      'sha3Uncles',
      'miner',
      'stateRoot',
      'transactionsRoot',
      'receiptsRoot',
      'logsBloom',
    ].map((name) => bytes(block, name)),
    ...['difficulty', 'number', 'gasLimit', 'gasUsed', 'timestamp'].map((name) => quantity(block, name)),
    ...['extraData', 'mixHash', 'nonce'].map((name) => bytes(block, name)),
  ];
  for (const [name, read] of LATER_FIELDS) {
    // Hard forks only append fields, so none follows a missing one.
    if (block[name] === undefined || block[name] === null) break;
    fields.push(read(block, name));
  }
  return fromBytes(keccak256(encodeRlp(fields)));
}

const LATER_FIELDS: readonly [string, (block: Json, name: string) => RlpItem][] = [
  ['baseFeePerGas', quantity],
  ['withdrawalsRoot', bytes],
  ['blobGasUsed', quantity],
  ['excessBlobGas', quantity],
  ['parentBeaconBlockRoot', bytes],
  ['requestsHash', bytes],
];

/** The root of these encoded values in the form that a header has. */
export function rootOf(encoded: readonly Uint8Array[]): Hash {
  return fromBytes(listRoot(encoded));
}

/** The transaction hash of an encoded transaction. */
export function transactionHash(encoded: Uint8Array): Hash {
  return fromBytes(keccak256(encoded));
}

/**
 * Why Chainbell can't encode the transaction: its type, such as `0x6a`, or `unsigned`. Undefined for a deposit of the OP Stack, and if it
 * has a type from 0 to 4 and a signature. Some chains create transactions, list them with an empty signature, and leave them out of the
 * roots. Anvil gives an empty signature to transactions of impersonated senders.
 */
export function unencodableType(transaction: Json): string | undefined {
  if (isDeposit(transaction)) return undefined;
  const type = typeOf(transaction);
  // Any other value counts as encodable here, because no chain has such a type. Encoding it then fails.
  if (type > TYPE_MAX && type <= ONE_BYTE_MAX && Number.isInteger(type)) return `0x${type.toString(16)}`;
  return isZero(transaction.r) && isZero(transaction.s) ? UNSIGNED : undefined;
}

export const UNSIGNED = 'unsigned';

const OP_DEPOSIT = 0x7e;

/** As `unencodableType` names it: a transaction of this type that isn't a deposit of the OP Stack. */
export const OTHER_DEPOSIT = `0x${OP_DEPOSIT.toString(16)}`;

/**
 * Whether it is a deposit of the OP Stack, which has no signature: the chain itself creates it. Scroll and Morph have messages of the same
 * type, without a source hash.
 */
export const isDeposit = (transaction: Json): boolean =>
  typeOf(transaction) === OP_DEPOSIT && typeof transaction.sourceHash === 'string';

/** A type is the first byte of an encoding (EIP-2718). */
const ONE_BYTE_MAX = 0xff;

const isZero = (value: unknown) => typeof value === 'string' && /^0x0*$/.test(value);

/**
 * Encodes a transaction as it was signed and mined. Source: EIP-155, 2930, 1559, 4844, 7702, OP Stack specification (deposits).
 * @throws Fault `inconsistent`.
 */
export function encodeTransaction(transaction: Json): Buffer {
  const type = typeOf(transaction);
  const to = transaction.to === undefined || transaction.to === null ? '0x' : bytes(transaction, 'to');
  const number = (name: string) => quantity(transaction, name);
  const call = [number('gas'), to, number('value'), bytes(transaction, 'input')];
  if (type === OP_DEPOSIT) return encodeDeposit(transaction, to);
  const signature = [number('r'), number('s')];
  // The fields are the same with EIP-155 and without it. `v` says which.
  if (type === 0) {
    return encodeRlp([number('nonce'), number('gasPrice'), ...call, number('v'), ...signature]);
  }
  const head = [number('chainId'), number('nonce')];
  const fees = type === 1 ? [number('gasPrice')] : [number('maxPriorityFeePerGas'), number('maxFeePerGas')];
  const parity = number(transaction.yParity === undefined ? 'v' : 'yParity');
  const own = [accessList(transaction), ...ownFields(transaction, type)];
  return typed(type, [...head, ...fees, ...call, ...own, parity, ...signature]);
}

/** A node leaves out `mint` if nothing is minted, and `isSystemTx` if it is false. */
function encodeDeposit(transaction: Json, to: string): Buffer {
  const { mint, isSystemTx } = transaction;
  const minted = mint === undefined || mint === null ? '0x' : quantity(transaction, 'mint');
  const isSystem = isSystemTx === true ? '0x01' : '0x';
  const head = [bytes(transaction, 'sourceHash'), bytes(transaction, 'from'), to, minted];
  const number = (name: string) => quantity(transaction, name);
  return typed(OP_DEPOSIT, [...head, number('value'), number('gas'), isSystem, bytes(transaction, 'input')]);
}

function ownFields(transaction: Json, type: number): RlpItem[] {
  switch (type) {
    case 1:
    case 2:
      return [];
    case 3:
      return [quantity(transaction, 'maxFeePerBlobGas'), texts(transaction.blobVersionedHashes)];
    case TYPE_MAX:
      return [list(transaction.authorizationList, 'authorizationList').map(authorization)];
    default:
      throw new Fault('inconsistent', `transactions of type ${type} are not known`);
  }
}

function authorization(entry: unknown): RlpItem {
  const fields = record(entry, 'authorization');
  const number = (name: string) => quantity(fields, name);
  const parity = number(fields.yParity === undefined ? 'v' : 'yParity');
  return [number('chainId'), bytes(fields, 'address'), number('nonce'), parity, number('r'), number('s')];
}

function accessList(transaction: Json): RlpItem {
  return list(transaction.accessList ?? [], 'accessList').map((entry) => {
    const fields = record(entry, 'accessList');
    return [bytes(fields, 'address'), texts(fields.storageKeys)];
  });
}

/**
 * Encodes a receipt as in the receipts trie. Its type comes from its transaction, because the transactions root
 * proves the transaction's type. A type that Chainbell doesn't know is encoded in the usual form, which most of them have.
 * Source: EIP-658 (status; before it, the state root), EIP-2718, OP Stack specification (deposits). @throws Fault `inconsistent`.
 */
export function encodeReceipt(receipt: Json, transaction: Json): Buffer {
  const type = typeOf(transaction);
  const hasStatus = receipt.status !== undefined && receipt.status !== null;
  const logs = list(receipt.logs, 'receipt.logs').map((entry) => {
    const log = record(entry, 'log');
    return [bytes(log, 'address'), texts(log.topics), bytes(log, 'data')];
  });
  const fields: RlpItem[] = [
    hasStatus ? quantity(receipt, 'status') : stateRoot(receipt),
    quantity(receipt, 'cumulativeGasUsed'),
    bytes(receipt, 'logsBloom'),
    logs,
  ];
  // The receipt of a deposit on an OP-stack chain has two more fields since Canyon.
  if (type === OP_DEPOSIT && typeof receipt.depositReceiptVersion === 'string')
    fields.push(quantity(receipt, 'depositNonce'), quantity(receipt, 'depositReceiptVersion'));
  return type === 0 ? encodeRlp(fields) : typed(type, fields);
}

/** A receipt's state root, which must have 32 bytes. A shorter one could be a status in disguise. */
function stateRoot(receipt: Json): string {
  const root = bytes(receipt, 'root');
  if (root.length === STATE_ROOT_CHARACTERS) return root;
  throw new Fault('inconsistent', "the node's receipt has neither status nor root");
}

const STATE_ROOT_CHARACTERS = 66;

/** Encodes a withdrawal from the beacon chain. Source: EIP-4895. @throws Fault `inconsistent`. */
export function encodeWithdrawal(entry: unknown): Buffer {
  const fields = record(entry, 'withdrawal');
  const number = (name: string) => quantity(fields, name);
  return encodeRlp([number('index'), number('validatorIndex'), bytes(fields, 'address'), number('amount')]);
}

function typed(type: number, fields: readonly RlpItem[]): Buffer {
  return Buffer.concat([Buffer.of(type), encodeRlp(fields)]);
}

function texts(value: unknown): string[] {
  return list(value, 'list').map((text) => checkText(text, 'list'));
}

function bytes(fields: Json, name: string): string {
  return checkText(fields[name], name);
}

function quantity(fields: Json, name: string): string {
  return quantityItem(checkText(fields[name], name));
}

function checkText(value: unknown, name: string): string {
  if (typeof value === 'string') return value;
  throw new Fault('inconsistent', `the node's ${name} is not hex`);
}
