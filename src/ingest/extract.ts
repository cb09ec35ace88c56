/**
 * Extracts the transfers of a block. docs/reference/webhooks.md says what counts as one. Pure.
 */
import type { Bundle, BundleTransaction } from '../chain/blocks/bundle.ts';
import type { ChainLog } from '../chain/rpc/parse.ts';
import { addressOfTopic, WORD_DIGITS } from '../core/abi.ts';
import type { Hash } from '../core/hex.ts';
import type { Transfer } from '../domain/block.ts';

/** keccak256("Transfer(address,address,uint256)"), EIP-20. */
export const TRANSFER_TOPIC: Hash = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';

/** Every native and ERC-20 transfer of the block, in the order of its transactions. */
export function extractTransfers({ transactions }: Bundle): Transfer[] {
  return transactions.flatMap((transaction) => [
    ...nativeTransfer(transaction),
    ...internalTransfers(transaction),
    ...tokenTransfers(transaction),
  ]);
}

/** None for a failed transaction, and none for a transaction of an unknown type without `to` or `value`. */
function nativeTransfer({ hash, from, to, value, succeeded }: BundleTransaction): Transfer[] {
  if (!succeeded || to === undefined || value === undefined || value === 0n) return [];
  const receiver = to === 'creation' ? undefined : to;
  return [
    {
      kind: 'transaction',
      txHash: hash,
      ordinal: 0,
      sender: from,
      receiver,
      amount: value,
      token: undefined,
    },
  ];
}

function internalTransfers({ hash, calls }: BundleTransaction): Transfer[] {
  return calls.map((call, ordinal) => ({
    kind: 'internal',
    txHash: hash,
    ordinal,
    ...call,
    token: undefined,
  }));
}

/** From the receipt's logs, whatever its status, because on some chains a failed transaction has a log of its fee. */
function tokenTransfers({ hash, logs }: BundleTransaction): Transfer[] {
  return logs.flatMap((log, ordinal) => {
    const [topic, from, to] = log.topics;
    if (topic !== TRANSFER_TOPIC || from === undefined || to === undefined || !hasTokenShape(log)) return [];
    const amount = BigInt(log.data);
    return [
      {
        kind: 'token' as const,
        txHash: hash,
        ordinal,
        sender: addressOfTopic(from),
        receiver: addressOfTopic(to),
        amount,
        token: log.address,
      },
    ];
  });
}

/** An ERC-20 transfer has exactly three topics and one word of data. An ERC-721 transfer has four topics. */
const hasTokenShape = ({ topics, data }: ChainLog) => topics.length === 3 && data.length === 2 + WORD_DIGITS;
