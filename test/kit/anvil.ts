/**
 * A real chain for tests. A test sends transactions, mines blocks and makes reorgs.
 * `await using chain = await startChain()` stops the chain at the end of the test.
 */
import { type Anvil, type AnvilOptions, startAnvil } from '../../devnet/anvil.ts';
import { type ContractName, encodeCall } from '../../devnet/contracts.ts';
import {
  deployContract,
  findBlock,
  listAccounts,
  quantity,
  type Receipt,
  sendTransaction,
  type Transaction,
  waitForReceipt,
} from '../../devnet/wallet.ts';
import type { Address, Hash } from '../../src/core/hex.ts';

export { startAnvil } from '../../devnet/anvil.ts';

/** More blocks would exceed the time limit of a request on a busy machine. */
const MINED_AT_ONCE = 500;

export type Chain = Anvil & {
  /** Ten accounts with 10,000 coins each; the node signs for them. */
  accounts: readonly [Address, Address, Address, Address, ...Address[]];
  head(): Promise<{ number: number; hash: Hash }>;
  /** Runs one piece of work at a time, because anvil 1.7.1 sometimes hangs for good when it is traced while it mines. */
  alone<T>(work: () => Promise<T>): Promise<T>;
  /** Mines blocks at once, including the transactions that wait in the pool. */
  mine(blocks?: number): Promise<void>;
  /** From now on transactions wait in the pool until `mine`. */
  pauseMining(): Promise<void>;
  /** From now on each transaction is mined at once, as at the start. */
  resumeMining(): Promise<void>;
  /** Sends a transaction. It may wait in the pool. */
  send(transaction: Transaction): Promise<Hash>;
  receiptOf(hash: Hash): Promise<Receipt>;
  /** Sends a transaction and waits until it is mined. Mining must be on. */
  execute(transaction: Transaction): Promise<Receipt>;
  transferNative(transfer: { from: Address; to: Address; valueWei: bigint }): Promise<Receipt>;
  deploy(contract: ContractName, ...values: readonly unknown[]): Promise<Address>;
  mintToken(token: Address, mint: { to: Address; amount: bigint }): Promise<Receipt>;
  transferToken(token: Address, transfer: { from: Address; to: Address; amount: bigint }): Promise<Receipt>;
  /**
   * Replaces the newest `depth` blocks by the same number of new ones. They are empty except for `transactions`, each with
   * the new block that mines it (0 = the oldest). Transactions of the replaced blocks are gone.
   */
  reorg(depth: number, transactions?: readonly (Transaction & { block: number })[]): Promise<void>;
};

/** Starts a chain that mines each transaction at once. */
export async function startChain(options: AnvilOptions = {}): Promise<Chain> {
  const anvil = await startAnvil(options);
  const [first, second, third, fourth, ...others] = await listAccounts(anvil);
  if (first === undefined || second === undefined || third === undefined || fourth === undefined) {
    throw new Error('an anvil with fewer than four accounts');
  }
  // anvil gives two transactions of one sender that arrive together the same nonce, and refuses the second one.
  let sent: Promise<unknown> = Promise.resolve();
  const send = (transaction: Transaction): Promise<Hash> => {
    const hash = sent.then(() => sendTransaction(anvil, transaction));
    sent = hash.catch(() => {});
    return hash;
  };
  const receiptOf = (hash: Hash) => waitForReceipt(anvil, hash);
  const execute = async (transaction: Transaction) => receiptOf(await send(transaction));
  const callToken = (from: Address, token: Address, method: string, values: readonly unknown[]) =>
    execute({ from, to: token, input: encodeCall({ contract: 'DemoToken', method, values }) });

  let turn: Promise<unknown> = Promise.resolve();
  const alone = <T>(work: () => Promise<T>): Promise<T> => {
    const result = turn.then(work);
    turn = result.catch(() => {});
    return result;
  };

  return {
    ...anvil,
    alone,
    accounts: [first, second, third, fourth, ...others],
    async head() {
      const block = await findBlock(anvil, 'latest');
      if (block === undefined) throw new Error('a chain without a newest block');
      return block;
    },
    async mine(blocks = 1) {
      for (let left = blocks; left > 0; left -= MINED_AT_ONCE)
        await alone(() => anvil.rpc('anvil_mine', [quantity(Math.min(left, MINED_AT_ONCE))]));
    },
    async pauseMining() {
      await anvil.rpc('evm_setAutomine', [false]);
    },
    async resumeMining() {
      await anvil.rpc('evm_setAutomine', [true]);
    },
    send,
    receiptOf,
    execute,
    transferNative: execute,
    deploy: (contract, ...values) => deployContract(anvil, { from: first, contract, values }),
    mintToken: (token, { to, amount }) => callToken(first, token, 'mint', [to, amount]),
    transferToken: (token, { from, to, amount }) => callToken(from, token, 'transfer', [to, amount]),
    async reorg(depth, transactions = []) {
      const placed = transactions.map(({ block, from, to, valueWei = 0n, input = '0x' }) => [
        { from, ...(to === undefined ? {} : { to }), value: quantity(valueWei), data: input },
        block,
      ]);
      await alone(() => anvil.rpc('anvil_reorg', [depth, placed]));
    },
  };
}
