/**
 * A Uniswap V2 pair on a test chain, with the published contracts. Tests send transactions to it and read its state.
 */
import { createRequire } from 'node:module';
import { type Abi, decodeFunctionResult, encodeDeployData, encodeFunctionData } from 'viem';
import { decimal } from '../../src/core/decimal.ts';
import { type Address, type Hex, zeroAddress } from '../../src/core/hex.ts';
import type { LpSupply, Reserves, ValuedPair } from '../../src/domain/pair.ts';
import type { Chain } from './anvil.ts';

const require = createRequire(import.meta.url);
const artifactOf = (name: string): { abi: Abi; bytecode: string } =>
  require(`@uniswap/v2-core/build/${name}.json`);
const factoryArtifact = artifactOf('UniswapV2Factory');
const pairAbi = artifactOf('UniswapV2Pair').abi;

/** Enough gas to create the factory, whose code contains the pair's code. */
const GAS: Hex = '0x7a1200';

export type Side = 0 | 1;

/** The current state that the pair's contract returns. */
type PairView = Reserves & LpSupply;

export type UniswapPair = {
  address: Address;
  factory: Address;
  tokens: readonly [Address, Address];
  /** The pair in the form of the configuration: both tokens fixed at 1 USD, valued by token1. */
  configured: ValuedPair;
  /** Sends new tokens to the pair without updating its reserves. */
  give(side: Side, amount: bigint): Promise<void>;
  mint(to: Address): Promise<void>;
  /** Burns LP tokens of `from`. */
  burn(from: Address, liquidity: bigint): Promise<void>;
  /** `data` makes it a flash swap, which calls the receiving contract. */
  swap(out: { side: Side; amount: bigint }, to: Address, data?: Hex): Promise<void>;
  sync(): Promise<void>;
  transferLp(from: Address, to: Address, amount: bigint): Promise<void>;
  setFeeTo(feeTo: Address): Promise<void>;
  lpBalanceOf(owner: Address): Promise<bigint>;
  view(): Promise<PairView>;
  /** The calldata of a transaction to the pair. */
  inputOf(method: string, values: readonly unknown[]): Hex;
};

/** Deploys a factory with one pair of two tokens with these decimals, token0 first. */
export async function deployPair(
  chain: Chain,
  decimals: readonly [number, number] = [18, 18],
): Promise<UniswapPair> {
  const [from] = chain.accounts;
  const send = async (to: Address | undefined, data: Hex, sender = from) => {
    const fields = { from: sender, data, gas: GAS, ...(to !== undefined && { to }) };
    const receipt = await chain.receiptOf((await chain.rpc('eth_sendTransaction', [fields])) as Hex);
    if (!receipt.succeeded) throw new Error(`${data.slice(0, 10)} to ${to ?? 'no contract'} reverted`);
    return receipt;
  };
  const { abi, bytecode } = factoryArtifact;
  const creation = encodeDeployData({ abi, bytecode: hexOf(bytecode), args: [from] });
  const factory = required((await send(undefined, creation)).contractAddress);
  const call = async (
    to: Address,
    from: Abi,
    functionName: string,
    args: readonly unknown[] = [],
  ): Promise<unknown> => {
    const data = encodeFunctionData({ abi: from, functionName, args });
    const result = (await chain.rpc('eth_call', [{ to, data }, 'latest'])) as Hex;
    return decodeFunctionResult({ abi: from, functionName, data: result });
  };
  const execute = async (method: string, values: readonly unknown[] = [], sender = from) => {
    await send(address, encodeFunctionData({ abi: pairAbi, functionName: method, args: values }), sender);
  };

  const [tokenA, tokenB] = [
    await chain.deploy('DemoToken', 'First', 'ONE', decimals[0]),
    await chain.deploy('DemoToken', 'Second', 'TWO', decimals[1]),
  ];
  const isOrdered = tokenA < tokenB;
  const tokens = isOrdered ? ([tokenA, tokenB] as const) : ([tokenB, tokenA] as const);
  const [token0Decimals, token1Decimals] = isOrdered ? decimals : [decimals[1], decimals[0]];
  await send(factory, encodeFunctionData({ abi, functionName: 'createPair', args: [...tokens] }));
  const address = String(await call(factory, abi, 'getPair', [...tokens])).toLowerCase() as Address;
  const one = { fixed: decimal('1') };

  return {
    address,
    factory,
    tokens,
    configured: {
      ...{ id: 1, name: 'ONE/TWO', address, token0: tokens[0], token1: tokens[1] },
      ...{ token0Decimals, token1Decimals, fee: 300, usdValueFrom: 1, rewardPid: 0 },
      ...{ value0: one, value1: one, areIndependent: true },
    },
    async give(side, amount) {
      await chain.mintToken(tokens[side], { to: address, amount });
    },
    mint: (to) => execute('mint', [to]),
    async burn(owner, liquidity) {
      await execute('transfer', [address, liquidity], owner);
      await execute('burn', [owner]);
    },
    swap: ({ side, amount }, to, data = '0x') =>
      execute('swap', side === 0 ? [amount, 0n, to, data] : [0n, amount, to, data]),
    sync: () => execute('sync'),
    transferLp: (owner, to, amount) => execute('transfer', [to, amount], owner),
    async setFeeTo(feeTo) {
      await send(factory, encodeFunctionData({ abi, functionName: 'setFeeTo', args: [feeTo] }));
    },
    lpBalanceOf: async (owner) => BigInt(String(await call(address, pairAbi, 'balanceOf', [owner]))),
    async view() {
      const [reserve0, reserve1] = (await call(address, pairAbi, 'getReserves')) as [bigint, bigint];
      return {
        reserve0,
        reserve1,
        totalSupply: BigInt(String(await call(address, pairAbi, 'totalSupply'))),
        kLast: BigInt(String(await call(address, pairAbi, 'kLast'))),
        isFeeOn: (await call(factory, abi, 'feeTo')) !== zeroAddress,
      };
    },
    inputOf: (method, values) => encodeFunctionData({ abi: pairAbi, functionName: method, args: values }),
  };
}

const hexOf = (digits: string): Hex => `0x${digits.replace(/^0x/, '')}`;

function required<T>(value: T | undefined): T {
  if (value === undefined) throw new Error('a creation without a contract');
  return value;
}
