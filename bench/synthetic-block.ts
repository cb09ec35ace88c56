/**
 * A made-up block as large as a busy block of Ethereum mainnet, with a valid header hash and valid roots.
 */
import { createHash } from 'node:crypto';
import {
  encodeReceipt,
  encodeTransaction,
  headerHash,
  rootOf,
  transactionHash,
} from '../src/chain/proof/roots.ts';

type Json = Record<string, unknown>;
export type SyntheticBlock = { block: Json & { transactions: Json[] }; receipts: Json[] };

const TRANSACTIONS = 200;
const LOGS = 500;
/** Input sizes, used in turn: the quantiles of the stored mainnet blocks, with the same mean of about 730 bytes. */
const INPUT_BYTES = [0, 0, 0, 68, 68, 68, 132, 260, 708, 5_900];

/** 200 transactions with a fee market and 500 logs with three topics each, with all fields that nodes return. */
export function makeMainnetSizedBlock(): SyntheticBlock {
  const transactions = Array.from({ length: TRANSACTIONS }, (_, index) => {
    const draft = {
      ...{ type: '0x2', chainId: '0x1', nonce: quantity(index + 1), gas: '0x33450', accessList: [] },
      ...{ maxPriorityFeePerGas: '0x5f5e100', maxFeePerGas: '0x6fc23ac00', gasPrice: '0x4a817c800' },
      ...{ from: bytes(20, 'from', index), to: bytes(20, 'to', index), value: '0xde0b6b3a7640000' },
      input: bytes(INPUT_BYTES[index % INPUT_BYTES.length] ?? 0, 'input', index),
      ...{ v: '0x1', yParity: '0x1', r: bytes(32, 'r', index), s: bytes(32, 's', index) },
    };
    return { ...draft, transactionIndex: quantity(index), hash: transactionHash(encodeTransaction(draft)) };
  });
  const receipts = transactions.map(({ hash, from, to, type }, index) => {
    const place = { transactionHash: hash, transactionIndex: quantity(index), blockNumber: '0x1000000' };
    const logs = Array.from({ length: logsOf(index) }, (_, log) => ({
      ...place,
      ...{ address: bytes(20, 'token', index + log), data: bytes(32, 'amount', index + log), removed: false },
      topics: ['event', 'sender', 'receiver'].map((name) => bytes(32, name, index + log)),
    }));
    const sums = { cumulativeGasUsed: quantity(100_000 * (index + 1)), gasUsed: '0x186a0' };
    return { ...place, ...sums, from, to, type, status: '0x1', logsBloom: bytes(256, 'bloom', index), logs };
  });
  const draft = {
    ...{ parentHash: bytes(32, 'parent'), sha3Uncles: bytes(32, 'uncles'), stateRoot: bytes(32, 'state') },
    ...{ miner: bytes(20, 'miner'), logsBloom: bytes(256, 'bloom'), mixHash: bytes(32, 'mix') },
    ...{ difficulty: '0x0', number: '0x1000000', gasLimit: '0x1c9c380', gasUsed: '0x1312d00' },
    ...{ timestamp: '0x65000000', extraData: '0x', nonce: '0x0000000000000000' },
    ...{ baseFeePerGas: '0x3b9aca00', withdrawalsRoot: bytes(32, 'withdrawals') },
    transactionsRoot: rootOf(transactions.map(encodeTransaction)),
    receiptsRoot: rootOf(receipts.map((receipt) => encodeReceipt(receipt, { type: receipt.type }))),
  };
  const hash = headerHash(draft);
  const block = { ...draft, hash, transactions: transactions.map((one) => ({ ...one, blockHash: hash })) };
  // Serialize and parse, so that its strings have the same internal form as those of a node's response.
  return JSON.parse(
    JSON.stringify({
      block,
      receipts: receipts.map((receipt) => ({
        ...receipt,
        blockHash: hash,
        logs: receipt.logs.map((log) => ({ ...log, blockHash: hash })),
      })),
    }),
  ) as SyntheticBlock;
}

/** Distributes 500 logs over 200 receipts. */
const logsOf = (index: number) => (LOGS / TRANSACTIONS) * 2 * (index % 2);

const quantity = (number: number) => `0x${number.toString(16)}`;

/** `count` bytes that look random and are the same in each run. */
function bytes(count: number, ...seed: readonly (string | number)[]): string {
  return `0x${createHash('shake256', { outputLength: Math.max(1, count) })
    .update(seed.join(' '))
    .digest('hex')
    .slice(0, 2 * count)}`;
}
