/**
 * The chain that every contestant reads: dense blocks of known transfers. Each transfer has a unique number as its amount, so
 * that rows can be compared with the transfers on the chain.
 */
import { type Anvil, startAnvil } from '../../devnet/anvil.ts';
import { listAccounts, quantity } from '../../devnet/wallet.ts';
import type { Address, Hex } from '../../src/core/hex.ts';
import { installPairs, type SwapPair, swapCalls, type Transaction } from './pairs.ts';

/** The number of transfers of each kind. Each kind is numbered from 1. */
export type Counts = { token: number; native: number };

export type BenchChain = Anvil & {
  /** Three addresses of the same node. Chainbell treats each as a separate node. */
  hosts: readonly [string, ...string[]];
  token: Address;
  /** All accounts that receive transfers. None of them sends any. */
  recipients: readonly Address[];
  /** Each dense block has one swap in each of these pairs. Empty unless `swaps` is set. */
  pairs: readonly SwapPair[];
  /** The number of the newest block. */
  head(): number;
  /** The transfers of blocks 1 to `block`. */
  countsUpTo(block: number): Counts;
  /** Mines one token transfer. Resolves when it is mined, with the time just before the call. */
  mineTransfer(): Promise<{ block: number; minedAt: number }>;
  /** Mines a block with `count` token transfers, in transactions of up to 100 transfers each. */
  mineTransfers(count: number): Promise<{ block: number; minedAt: number }>;
};

const TOKEN_CALLS = 10;
const TRANSFERS_PER_CALL = 10;
const NATIVE_TRANSFERS = 10;
const RECIPIENTS = 1_000;
const TRANSFERS_PER_CALL_MAX = 100;
const RECIPIENT_BASE = 0x10n << 152n;
const TOKEN: Address = `0x${'70'.repeat(20)}`;
/** keccak256 of Transfer(address,address,uint256) */
const TRANSFER_TOPIC = 'ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';
const GAS = 500_000;
const CALL_MS_MAX = 30_000;
/** startAnvil returns a URL with the first one. */
const HOSTS = ['127.0.0.1', '127.0.0.2', '127.0.0.3'] as const;
const ANVIL_ARGUMENTS = [
  ...HOSTS.slice(1).flatMap((host) => ['--host', host]),
  '--no-mining',
  '--disable-block-gas-limit',
  // Blocks and receipts are kept in any case. Past states, which the benchmarks never read, would be written to the disk.
  ...['--prune-history', '64'],
];

/**
 * Emits Transfer(caller, RECIPIENT_BASE + n % recipients, n) for each n from calldata word 0 up to, but excluding, word 1.
 * The leftmost value is the bottom of the stack.
 */
const tokenCode = (recipients: number): Hex =>
  `0x${[
    '5f35', //                 PUSH0 CALLDATALOAD               n
    '5b', //                   JUMPDEST (2)                     n
    '805f52', //               DUP1 PUSH0 MSTORE                n                  memory[0..32] = n
    `61${hexOf(BigInt(recipients), 2)}8106`, // PUSH2 recipients DUP2 MOD  n n%recipients
    `73${hexOf(RECIPIENT_BASE, 20)}01`, // PUSH20 base ADD      n recipient
    '33', //                   CALLER                           n recipient caller
    `7f${TRANSFER_TOPIC}`, //  PUSH32 topic                     n recipient caller topic
    '60205fa3', //             PUSH1 32 PUSH0 LOG3              n
    '600101', //               PUSH1 1 ADD                      n+1
    '8060203511', //           DUP1 PUSH1 32 CALLDATALOAD GT    n+1 (word 1 > n+1)
    '600257', //               PUSH1 2 JUMPI                    n+1
    '00', //                   STOP
  ].join('')}`;

/**
 * Starts anvil and mines `blocks` blocks, each with 100 token transfers and 10 native ones to the recipients in turn. With
 * `swaps`, each block also has a swap in each of the pairs.
 */
export async function startBenchChain(
  blocks: number,
  { recipients = RECIPIENTS, swaps = false }: { recipients?: number; swaps?: boolean } = {},
): Promise<BenchChain> {
  const anvil = await startAnvil({ extraArguments: ANVIL_ARGUMENTS });
  try {
    await anvil.rpc('anvil_setCode', [TOKEN, tokenCode(recipients)]);
    const senders = await listAccounts(anvil);
    const pairs = swaps ? await installPairs(anvil, senders) : [];
    const counts: Counts[] = [{ token: 0, native: 0 }];
    const latest = () => counts.at(-1) ?? { token: 0, native: 0 };
    const mine = async (sent: Counts) => {
      const minedAt = performance.now();
      await anvil.rpc('evm_mine');
      counts.push(sent);
      return { block: counts.length - 1, minedAt };
    };
    for (let block = 1; block <= blocks; block += 1) {
      const { transactions, sent } = denseBlock(senders, latest());
      const swapping = pairs.flatMap((pair, index) => swapCalls(pair, senderOf(senders, index)));
      await sendAll(anvil, [...transactions, ...swapping]);
      await mine(sent);
    }
    return {
      ...anvil,
      hosts: HOSTS,
      token: TOKEN,
      pairs,
      recipients: Array.from({ length: recipients }, (_, index) => recipientOf(index)),
      head: () => counts.length - 1,
      countsUpTo: (block) => counts[block] ?? latest(),
      async mineTransfer() {
        const { token, native } = latest();
        await sendAll(anvil, [tokenCall(senderOf(senders, 0), { first: token + 1, count: 1 })]);
        return mine({ token: token + 1, native });
      },
      async mineTransfers(count) {
        const { token, native } = latest();
        const calls: Transaction[] = [];
        for (let sent = 0; sent < count; sent += TRANSFERS_PER_CALL_MAX) {
          const size = Math.min(TRANSFERS_PER_CALL_MAX, count - sent);
          calls.push(tokenCall(senderOf(senders, calls.length), { first: token + 1 + sent, count: size }));
        }
        await sendAll(anvil, calls);
        return mine({ token: token + count, native });
      },
    };
  } catch (error) {
    await anvil.stop();
    throw error;
  }
}

/** The transactions of the next block, and the transfers they contain. */
function denseBlock(senders: readonly Address[], { token, native }: Counts) {
  const calls = Array.from({ length: TOKEN_CALLS }, (_, index) =>
    tokenCall(senderOf(senders, index), {
      first: token + 1 + index * TRANSFERS_PER_CALL,
      count: TRANSFERS_PER_CALL,
    }),
  );
  const transfers = Array.from({ length: NATIVE_TRANSFERS }, (_, index) => {
    const number = native + 1 + index;
    return { from: senderOf(senders, index), to: recipientOf(number % RECIPIENTS), value: quantity(number) };
  });
  const sent = { token: token + TOKEN_CALLS * TRANSFERS_PER_CALL, native: native + NATIVE_TRANSFERS };
  return { transactions: [...calls, ...transfers], sent };
}

function tokenCall(from: Address, { first, count }: { first: number; count: number }): Transaction {
  const data: Hex = `0x${hexOf(BigInt(first), 32)}${hexOf(BigInt(first + count), 32)}`;
  return { from, to: TOKEN, data };
}

function senderOf(senders: readonly Address[], index: number): Address {
  const sender = senders[index % senders.length];
  if (sender === undefined) throw new Error('an anvil without accounts');
  return sender;
}

/** Sends transactions in one request. Anvil signs for the senders. */
async function sendAll(anvil: Anvil, transactions: readonly Transaction[]): Promise<void> {
  const calls = transactions.map((transaction, id) => ({
    jsonrpc: '2.0',
    id,
    method: 'eth_sendTransaction',
    params: [{ ...transaction, gas: quantity(GAS) }],
  }));
  const response = await fetch(anvil.url, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(calls),
    signal: AbortSignal.timeout(CALL_MS_MAX),
  });
  const answers: unknown = await response.json();
  const isSent = Array.isArray(answers) && answers.every((answer) => 'result' in answer);
  if (!isSent) throw new Error(`anvil refused transactions: ${JSON.stringify(answers).slice(0, 500)}`);
}

function recipientOf(number: number): Address {
  return `0x${hexOf(RECIPIENT_BASE + BigInt(number), 20)}`;
}

function hexOf(value: bigint, bytes: number): string {
  return value.toString(16).padStart(bytes * 2, '0');
}
