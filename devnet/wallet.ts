/**
 * Transactions and reads on a development chain whose node signs for its accounts.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { Fault } from '../src/core/fault.ts';
import type { Address, Hash, Hex } from '../src/core/hex.ts';
import type { Anvil } from './anvil.ts';
import {
  type ContractCall,
  type ContractName,
  decodeResult,
  encodeCall,
  encodeCreation,
} from './contracts.ts';

/** The required part of a node. */
export type RpcEndpoint = Pick<Anvil, 'rpc'>;

export type Transaction = {
  from: Address;
  /** Absent if the transaction creates a contract. */
  to?: Address;
  valueWei?: bigint;
  input?: Hex;
  /** Default: enough for everything except a large creation. */
  gas?: number;
};

export type Receipt = {
  hash: Hash;
  blockNumber: number;
  blockHash: Hash;
  succeeded: boolean;
  contractAddress: Address | undefined;
  logs: readonly { address: Address; topics: readonly Hex[]; data: Hex }[];
};

/** Sent with every transaction, because a node refuses to estimate one that will fail, and some should fail. */
const GAS = 3_000_000;
/** anvil's default. */
const GAS_OF_BLOCK_MAX = 30_000_000;
/** The time in which anvil 1.7.1 traces a block grows with the square of its transactions: 136 of them took five seconds. */
const TRANSACTIONS_OF_BLOCK_MAX = 16;
const RECEIPT_MS_MAX = 30_000;
const LOOK_AGAIN_MS = 20;

/** The accounts for which the node signs, in its order. */
export async function listAccounts(node: RpcEndpoint): Promise<Address[]> {
  const accounts = await node.rpc('eth_accounts');
  if (!Array.isArray(accounts)) throw unexpected('eth_accounts');
  return accounts.map((account) => hexOf(account, 'eth_accounts'));
}

/** Sends a transaction without waiting until it is mined. */
export async function sendTransaction(node: RpcEndpoint, transaction: Transaction): Promise<Hash> {
  const hash = await node.rpc('eth_sendTransaction', [fieldsOfTransaction(transaction)]);
  return hexOf(hash, 'eth_sendTransaction');
}

/**
 * Mines the transactions in as few blocks as possible, the first block at the given time or now. Transactions of one sender stay in
 * order, and those of different senders come in any order. The node must mine each transaction at once, before and after.
 * @throws Fault `invalid` if one of them fails
 */
export async function executeAll(
  node: RpcEndpoint,
  transactions: readonly Transaction[],
  at?: Date,
): Promise<void> {
  const nonces = new Map<Address, number>();
  const countOf = async (from: Address) => {
    nonces.set(from, Number(await node.rpc('eth_getTransactionCount', [from, 'latest'])));
  };
  await Promise.all(Array.from(new Set(transactions.map(({ from }) => from)), countOf));
  await node.rpc('evm_setAutomine', [false]);
  let mineAt = at === undefined ? [] : [Math.floor(at.getTime() / 1000)];
  for (const block of fillBlocks(transactions)) {
    const sending = block.map((transaction) => {
      const nonce = nonces.get(transaction.from) ?? 0;
      nonces.set(transaction.from, nonce + 1);
      const fields = { ...fieldsOfTransaction(transaction), nonce: quantity(nonce) };
      return node.rpc('eth_sendTransaction', [fields]);
    });
    const hashes = await Promise.all(sending);
    await node.rpc('evm_mine', mineAt);
    mineAt = [];
    const receipts = await node.rpc('eth_getBlockReceipts', ['latest']);
    if (!Array.isArray(receipts)) throw unexpected('eth_getBlockReceipts');
    const succeeded = new Set<unknown>(
      receipts.map(parseReceipt).flatMap((receipt) => (receipt.succeeded ? receipt.hash : [])),
    );
    const failed = block.find((_, place) => !succeeded.has(hashes[place]));
    if (failed !== undefined)
      throw new Fault('invalid', `a transaction to ${failed.to ?? 'a new contract'} failed`);
  }
  await node.rpc('evm_setAutomine', [true]);
}

/** anvil 1.7.1 drops the transactions after one that does not fit into a block. */
function fillBlocks(transactions: readonly Transaction[]): Transaction[][] {
  const blocks: Transaction[][] = [[]];
  let gasOfBlock = 0;
  for (const transaction of transactions) {
    const { gas = GAS } = transaction;
    gasOfBlock += gas;
    if (gasOfBlock > GAS_OF_BLOCK_MAX || blocks.at(-1)?.length === TRANSACTIONS_OF_BLOCK_MAX) {
      blocks.push([]);
      gasOfBlock = gas;
    }
    blocks.at(-1)?.push(transaction);
  }
  return blocks;
}

/** The receipt once the transaction is mined. @throws Fault `unavailable` after 30 s without it */
export async function waitForReceipt(node: RpcEndpoint, hash: Hash): Promise<Receipt> {
  const deadline = Date.now() + RECEIPT_MS_MAX;
  while (Date.now() < deadline) {
    const receipt = await node.rpc('eth_getTransactionReceipt', [hash]);
    if (receipt !== null) return parseReceipt(receipt);
    await delay(LOOK_AGAIN_MS);
  }
  throw new Fault('unavailable', `transaction ${hash} was not mined within ${RECEIPT_MS_MAX / 1000} s`);
}

/** The address of a new contract. `values` are for its constructor. @throws Fault `invalid` if it reverts */
export async function deployContract(
  node: RpcEndpoint,
  creation: { from: Address; contract: ContractName; values?: readonly unknown[] },
): Promise<Address> {
  const input = encodeCreation(creation.contract, creation.values);
  const hash = await sendTransaction(node, { from: creation.from, input });
  const { succeeded, contractAddress } = await waitForReceipt(node, hash);
  if (!succeeded || contractAddress === undefined) {
    throw new Fault('invalid', `the creation of ${creation.contract} failed (${hash})`);
  }
  return contractAddress;
}

/** The current result of a method. */
export async function readContract(
  node: RpcEndpoint,
  address: Address,
  call: ContractCall,
): Promise<unknown> {
  const result = await node.rpc('eth_call', [{ to: address, data: encodeCall(call) }, 'latest']);
  return decodeResult(call, hexOf(result, 'eth_call'));
}

/** True if there is a contract at the address. */
export async function isContract(node: RpcEndpoint, address: Address): Promise<boolean> {
  return (await node.rpc('eth_getCode', [address, 'latest'])) !== '0x';
}

/** The balance of native coin. */
export async function readBalanceWei(node: RpcEndpoint, address: Address): Promise<bigint> {
  return BigInt(hexOf(await node.rpc('eth_getBalance', [address, 'latest']), 'eth_getBalance'));
}

/** Number and hash of a block. Undefined if the chain has no such block. */
export async function findBlock(
  node: RpcEndpoint,
  block: number | 'latest',
): Promise<{ number: number; hash: Hash } | undefined> {
  const tag = block === 'latest' ? block : quantity(block);
  const found = await node.rpc('eth_getBlockByNumber', [tag, false]);
  if (found === null) return undefined;
  const fields = fieldsOf(found, 'eth_getBlockByNumber');
  return { number: Number(fields.number), hash: hexOf(fields.hash, 'eth_getBlockByNumber') };
}

/** The time of the newest block. */
export async function readChainTime(node: RpcEndpoint): Promise<Date> {
  const method = 'eth_getBlockByNumber';
  const { timestamp } = fieldsOf(await node.rpc(method, ['latest', false]), method);
  return new Date(Number(timestamp) * 1000);
}

/** An integer in JSON-RPC form. */
export function quantity(value: number | bigint): Hex {
  return `0x${value.toString(16)}`;
}

function fieldsOfTransaction({ from, to, valueWei = 0n, input = '0x', gas = GAS }: Transaction) {
  const fields = { from, value: quantity(valueWei), data: input, gas: quantity(gas) };
  return to === undefined ? fields : { ...fields, to };
}

function parseReceipt(receipt: unknown): Receipt {
  const method = 'eth_getTransactionReceipt';
  const fields = fieldsOf(receipt, method);
  const { contractAddress, logs } = fields;
  if (!Array.isArray(logs)) throw unexpected(method);
  return {
    hash: hexOf(fields.transactionHash, method),
    blockNumber: Number(fields.blockNumber),
    blockHash: hexOf(fields.blockHash, method),
    succeeded: fields.status === '0x1',
    contractAddress: contractAddress === null ? undefined : hexOf(contractAddress, method),
    logs: logs.map((log) => {
      const { address, topics, data } = fieldsOf(log, method);
      if (!Array.isArray(topics)) throw unexpected(method);
      return {
        address: hexOf(address, method),
        topics: topics.map((topic) => hexOf(topic, method)),
        data: hexOf(data, method),
      };
    }),
  };
}

function fieldsOf(value: unknown, method: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null) throw unexpected(method);
  return { ...value };
}

function hexOf(value: unknown, method: string): Hex {
  if (typeof value !== 'string' || !/^0x[0-9a-f]*$/i.test(value)) throw unexpected(method);
  return `0x${value.slice(2).toLowerCase()}`;
}

function unexpected(method: string): Fault {
  return new Fault('inconsistent', `${method}: an answer of another shape`);
}
