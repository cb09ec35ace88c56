/**
 * The demo's market: the six pairs of spec 2.3 on a real Uniswap V2, and contracts that earn points or hold coins. The address of
 * each contract follows from its deployer and nonce, so no addresses are stored.
 */
import assert from 'node:assert/strict';
import { encodePacked, getContractAddress, getCreate2Address, keccak256 } from 'viem';
import { type Address, parseAddress } from '../src/core/hex.ts';
import { encodeCreation } from './contracts.ts';

export type TokenSymbol = 'RWD' | 'USDT' | 'USDC' | 'SOL' | 'DOGE' | 'XRP';

export const marketTokens = {
  RWD: { name: 'Reward', decimals: 18 },
  USDT: { name: 'Tether USD', decimals: 6 },
  USDC: { name: 'USD Coin', decimals: 6 },
  SOL: { name: 'Solana', decimals: 18 },
  DOGE: { name: 'Dogecoin', decimals: 8 },
  XRP: { name: 'XRP', decimals: 18 },
} as const satisfies Record<TokenSymbol, { name: string; decimals: number }>;

export const tokenSymbols = ['RWD', 'USDT', 'USDC', 'SOL', 'DOGE', 'XRP'] as const satisfies TokenSymbol[];

/** The table of spec 2.3. token1 is always the wrapped native coin. */
export const pairTable = [
  { id: 1, token0: 'RWD', usdValueFrom: 1, rewardPid: 0 },
  { id: 2, token0: 'USDT', usdValueFrom: 0, rewardPid: 1 },
  { id: 3, token0: 'USDC', usdValueFrom: 0, rewardPid: 2 },
  { id: 4, token0: 'SOL', usdValueFrom: 1, rewardPid: 4 },
  { id: 5, token0: 'DOGE', usdValueFrom: 1, rewardPid: 5 },
  { id: 6, token0: 'XRP', usdValueFrom: 1, rewardPid: 6 },
] as const satisfies { id: number; token0: TokenSymbol; usdValueFrom: 0 | 1; rewardPid: number }[];

/** Farm pool 3 takes the wrapped native coin, and all others take LP tokens. */
export const NATIVE_POOL = 3;

/** The address of Multicall3 on any chain. */
export const MULTICALL3: Address = '0xca11bde05977b3631167028862be2a173976ca11';

export type Market = {
  tokens: Record<TokenSymbol, Address>;
  /** The native coin as an ERC-20. Its address is above those of all tokens. */
  wrapped: Address;
  factory: Address;
  router: Address;
  /** Pairs by the token that is not the native coin. */
  pairs: Record<TokenSymbol, Address>;
  farm: Address;
  validatorStaking: Address;
  vestingTeam: Address;
  vestingAdvisors: Address;
  bridge: Address;
  governor: Address;
  referrals: Address;
};

/** The number of contracts that the deployer creates for the market, in its first transactions. */
export const MARKET_CREATIONS = 16;

/** The address of the contract that an account creates in its n-th transaction, counted from 0. */
export function createdAt(deployer: Address, turn: number): Address {
  return parseAddress(getContractAddress({ from: deployer, nonce: BigInt(turn) }));
}

/** The addresses of the market if the deployer's first transactions create it. */
export function planMarket(deployer: Address): Market {
  const created = (turn: number) => createdAt(deployer, turn);
  // token0 of a pair is the lower address, and spec 2.3 has the native coin as token1, so it gets the highest of seven addresses.
  const [RWD, USDT, USDC, SOL, DOGE, XRP, wrapped] = [0, 1, 2, 3, 4, 5, 6].map(created).sort();
  assert(RWD && USDT && USDC && SOL && DOGE && XRP && wrapped);
  const factory = created(7);
  const pair = (token0: Address) => addressOfPair(factory, { token0, token1: wrapped });
  return {
    tokens: { RWD, USDT, USDC, SOL, DOGE, XRP },
    wrapped,
    factory,
    router: created(8),
    pairs: {
      RWD: pair(RWD),
      USDT: pair(USDT),
      USDC: pair(USDC),
      SOL: pair(SOL),
      DOGE: pair(DOGE),
      XRP: pair(XRP),
    },
    farm: created(9),
    validatorStaking: created(10),
    vestingTeam: created(11),
    vestingAdvisors: created(12),
    bridge: created(13),
    governor: created(14),
    referrals: created(15),
  };
}

/** The pair to which the n-th member adds liquidity, by its token. */
export function homePair(member: number): TokenSymbol {
  return tokenSymbols[member % tokenSymbols.length] ?? 'RWD';
}

/** The factory creates each pair by CREATE2. */
function addressOfPair(factory: Address, { token0, token1 }: { token0: Address; token1: Address }): Address {
  const salt = keccak256(encodePacked(['address', 'address'], [token0, token1]));
  return parseAddress(getCreate2Address({ from: factory, salt, bytecode: encodeCreation('UniswapV2Pair') }));
}
