/**
 * What a block's hash commits to, computed from the JSON as the node gave it.
 */
import { Fault } from '../../core/fault.ts';
import { fromBytes, type Hash } from '../../core/hex.ts';
import { list, record, TYPE_MAX, typeOf } from '../rpc/parse.ts';
import { keccak256 } from './keccak.ts';
import { encodeRlp, quantityItem, type RlpItem } from './rlp.ts';
import { listRoot } from './trie.ts';

type Json = Record<string, unknown>;

/**
 * The hash of the header's fields, of any fork so far. Source: EIP-1559, 4895, 4844, 4788, 7685.
 * @throws Fault.
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
    // Forks only ever append: where one field is not there none of the following is.
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

/** The root of these encoded values, as the header has it. */
export function rootOf(encoded: readonly Uint8Array[]): Hash {
  return fromBytes(listRoot(encoded));
}

/** The hash by which an encoded transaction is known. */
export function transactionHash(encoded: Uint8Array): Hash {
  return fromBytes(keccak256(encoded));
}

/**
 * Whether the transaction can be encoded here: of type 0 to 4, and signed. Some chains list transactions of
 * their own making with an empty signature and leave them out of the roots; anvil gives those of impersonated
 * senders one.
 */
export function isEncodable(transaction: Json): boolean {
  const isUnsigned = isZero(transaction.r) && isZero(transaction.s);
  // What is no number at all is no type of a chain's own: encoding it fails.
  return !(typeOf(transaction) > TYPE_MAX) && !isUnsigned;
}

const isZero = (value: unknown) => typeof value === 'string' && /^0x0*$/.test(value);

/**
 * A transaction as it was signed and mined. Source: EIP-155, 2930, 1559, 4844, 7702.
 * @throws Fault `inconsistent`.
 */
export function encodeTransaction(transaction: Json): Buffer {
  const type = typeOf(transaction);
  const to = transaction.to === undefined || transaction.to === null ? '0x' : bytes(transaction, 'to');
  const number = (name: string) => quantity(transaction, name);
  const call = [number('gas'), to, number('value'), bytes(transaction, 'input')];
  const signature = [number('r'), number('s')];
  // With EIP-155 and without: v says.
  if (type === 0) {
    return encodeRlp([number('nonce'), number('gasPrice'), ...call, number('v'), ...signature]);
  }
  const head = [number('chainId'), number('nonce')];
  const fees = type === 1 ? [number('gasPrice')] : [number('maxPriorityFeePerGas'), number('maxFeePerGas')];
  const parity = number(transaction.yParity === undefined ? 'v' : 'yParity');
  const own = [accessList(transaction), ...ownFields(transaction, type)];
  return typed(type, [...head, ...fees, ...call, ...own, parity, ...signature]);
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
 * A receipt as the receipts root has it; its type is its transaction's, which the transactions root proves.
 * Source: EIP-658 (status; before it, the state's root), EIP-2718. @throws Fault `inconsistent`.
 */
export function encodeReceipt(receipt: Json, transaction: Json): Buffer {
  const type = typeOf(transaction);
  const hasStatus = receipt.status !== undefined && receipt.status !== null;
  const logs = list(receipt.logs, 'receipt.logs').map((entry) => {
    const log = record(entry, 'log');
    return [bytes(log, 'address'), texts(log.topics), bytes(log, 'data')];
  });
  const fields = [
    hasStatus ? quantity(receipt, 'status') : stateRoot(receipt),
    quantity(receipt, 'cumulativeGasUsed'),
    bytes(receipt, 'logsBloom'),
    logs,
  ];
  return type === 0 ? encodeRlp(fields) : typed(type, fields);
}

/** 32 bytes: shorter ones could be a status in disguise, which no reader would expect. */
function stateRoot(receipt: Json): string {
  const root = bytes(receipt, 'root');
  if (root.length === STATE_ROOT_CHARACTERS) return root;
  throw new Fault('inconsistent', "the node's receipt has neither status nor root");
}

const STATE_ROOT_CHARACTERS = 66;

/** A payment out of the beacon chain. Source: EIP-4895. @throws Fault `inconsistent`. */
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
