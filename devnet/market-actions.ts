/**
 * The actions on the demo's market, each as a transaction.
 */
import { maxUint256, parseUnits } from 'viem';
import type { Address } from '../src/core/hex.ts';
import { type ContractCall, encodeCall } from './contracts.ts';
import { type Market, MULTICALL3, marketTokens, type TokenSymbol } from './market.ts';
import { usdPriceAt } from './prices.ts';
import type { Transaction } from './wallet.ts';

/** Actions of any account, with amounts in the smallest unit. Swaps and liquidity accept any price. */
export type MarketActions = ReturnType<typeof marketActions>;

/** Far more than any of them uses, and little enough for many transactions in a block. */
const GAS = 500_000;
/** The first liquidity of a pair creates the pair. */
const GAS_OF_PAIR = 4_000_000;
const GAS_OF_MINT = 100_000;
/** A deadline that never passes. */
const deadline = maxUint256;
/** The target chain of the bridge: an id that no chain has. */
const OTHER_CHAIN = 31_338n;

export function marketActions(market: Market) {
  const { tokens, wrapped, router, farm, validatorStaking, bridge, governor, referrals } = market;
  const call = (from: Address, to: Address, contractCall: ContractCall, valueWei = 0n): Transaction => ({
    from,
    to,
    valueWei,
    input: encodeCall(contractCall),
    gas: GAS,
  });
  const route = (from: Address, method: string, values: readonly unknown[], valueWei?: bigint) =>
    call(from, router, { contract: 'UniswapV2Router02', method, values }, valueWei);

  return {
    /** Sends tokens to all of them in one transaction. */
    mintAll: (from: Address, mints: readonly { symbol: TokenSymbol; to: Address; amount: bigint }[]) => ({
      ...call(from, MULTICALL3, {
        contract: 'Multicall3',
        method: 'aggregate3',
        values: [
          mints.map(({ symbol, to, amount }) => ({
            target: tokens[symbol],
            allowFailure: false,
            callData: encodeCall({ contract: 'DemoToken', method: 'mint', values: [to, amount] }),
          })),
        ],
      }),
      gas: mints.length * GAS_OF_MINT,
    }),
    approve: (from: Address, token: Address, spender: Address) =>
      call(from, token, { contract: 'DemoToken', method: 'approve', values: [spender, maxUint256] }),

    buy: (from: Address, symbol: TokenSymbol, wei: bigint) =>
      route(from, 'swapExactETHForTokens', [0n, [wrapped, tokens[symbol]], from, deadline], wei),
    sell: (from: Address, symbol: TokenSymbol, amount: bigint) =>
      route(from, 'swapExactTokensForETH', [amount, 0n, [tokens[symbol], wrapped], from, deadline]),
    addLiquidity: (from: Address, symbol: TokenSymbol, sides: { amount: bigint; wei: bigint }) => ({
      ...route(from, 'addLiquidityETH', [tokens[symbol], sides.amount, 0n, 0n, from, deadline], sides.wei),
      gas: GAS_OF_PAIR,
    }),
    removeLiquidity: (from: Address, symbol: TokenSymbol, liquidity: bigint) =>
      route(from, 'removeLiquidityETH', [tokens[symbol], liquidity, 0n, 0n, from, deadline]),

    addPool: (from: Address, token: Address) =>
      call(from, farm, { contract: 'Farm', method: 'add', values: [token] }),
    deposit: (from: Address, pool: number, amount: bigint) =>
      call(from, farm, { contract: 'Farm', method: 'deposit', values: [pool, amount] }),
    withdraw: (from: Address, pool: number, amount: bigint) =>
      call(from, farm, { contract: 'Farm', method: 'withdraw', values: [pool, amount] }),
    wrap: (from: Address, wei: bigint) =>
      call(from, wrapped, { contract: 'WrappedCoin', method: 'deposit' }, wei),

    stake: (from: Address, wei: bigint) =>
      call(from, validatorStaking, { contract: 'ValidatorStaking', method: 'stake' }, wei),
    unstake: (from: Address, wei: bigint) =>
      call(from, validatorStaking, { contract: 'ValidatorStaking', method: 'unstake', values: [wei] }),

    propose: (from: Address, description: string) =>
      call(from, governor, { contract: 'Governor', method: 'propose', values: [description] }),
    vote: (from: Address, proposalId: bigint, support: number) =>
      call(from, governor, { contract: 'Governor', method: 'castVote', values: [proposalId, support] }),
    refer: (from: Address, referrer: Address) =>
      call(from, referrals, { contract: 'Referrals', method: 'register', values: [referrer] }),

    bridgeOut: (from: Address, wei: bigint) =>
      call(from, bridge, { contract: 'Bridge', method: 'send', values: [OTHER_CHAIN, from] }, wei),
    /** Only for the relayer. Each nonce is valid once. */
    bridgeIn: (from: Address, message: { nonce: bigint; receiver: Address; wei: bigint }) =>
      call(from, bridge, {
        contract: 'Bridge',
        method: 'receiveFrom',
        values: [OTHER_CHAIN, message.nonce, message.receiver, message.wei],
      }),
  };
}

/** The amount of a token that is worth this amount of native coins at a time, by the prices of the feed. */
export function worthOf(symbol: TokenSymbol, coins: number, time: Date): bigint {
  const { decimals } = marketTokens[symbol];
  const amount = (coins * usdPriceAt('ETH', time)) / usdPriceAt(symbol, time);
  return parseUnits(amount.toFixed(6), decimals);
}
