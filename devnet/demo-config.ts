/**
 * The demo's configuration, as the operator of the demo's chain would write it.
 */
import { type ConfigOverrides, loadConfig } from '../src/config/load.ts';
import type { Config } from '../src/config/schema.ts';
import type { Address } from '../src/core/hex.ts';
import { type Market, MULTICALL3, marketTokens, pairTable } from './market.ts';
import { pointsOf } from './points-rules.ts';

export const CHAIN_ID = 31337;
export const NATIVE_SYMBOL = 'ETH';
export const REWARD_SYMBOL = 'RWD';

/** Ports for the reader's own receivers on this machine. */
const furtherWebhookPorts = [443, 3000, 8000];
/** A feed on this machine may be polled often. */
const PRICE_SECONDS = 5;

export type DemoConfigOptions = {
  rpc: readonly string[];
  dataDir: string;
  receiverPort: number;
  /** Undefined means the schedule of the specification. */
  retryMinutes: readonly number[] | undefined;
  /** URL of the price feed. The price of ETH is at /ETH. */
  priceFeedUrl: string;
  market: Market;
  /** Further tokens of the traffic, by symbol. */
  tokens: Readonly<Record<string, { address: Address; decimals: number }>>;
  deployer: Address;
  /** Coins of all accounts at genesis, in whole coins. */
  initialCoins: number;
};

export const demoConfig = (options: DemoConfigOptions): Config =>
  loadConfig({ env: {}, overrides: demoConfigText(options) });

/** The configuration as written to a file. It allows webhooks to this machine, which only a demo should do. */
export function demoConfigText(options: DemoConfigOptions): ConfigOverrides {
  const { market, retryMinutes } = options;
  const { tokens, wrapped, pairs } = market;
  const tokenOf = (symbol: 'USDT' | 'USDC' | 'SOL' | 'DOGE' | 'XRP') => ({
    address: tokens[symbol],
    decimals: marketTokens[symbol].decimals,
  });
  return {
    chain: {
      id: CHAIN_ID,
      rpc: [...options.rpc],
      native: { symbol: NATIVE_SYMBOL },
      reward: { symbol: REWARD_SYMBOL },
      // Liquidity, stakes and referrals of the setup count too.
      startBlock: 1,
    },
    dataDir: options.dataDir,
    webhooks: {
      allowHttp: true,
      allowCidrs: ['127.0.0.0/8', '::1/128'],
      ports: [...new Set([options.receiverPort, ...furtherWebhookPorts])],
      ...(retryMinutes === undefined ? {} : { retryMinutes: [...retryMinutes] }),
    },
    tokens: {
      USDT: { ...tokenOf('USDT'), usd: 1 },
      USDC: { ...tokenOf('USDC'), usd: 1 },
      SOL: tokenOf('SOL'),
      DOGE: tokenOf('DOGE'),
      XRP: tokenOf('XRP'),
      ...options.tokens,
    },
    pairs: pairTable.map(({ id, token0, usdValueFrom, rewardPid }) => ({
      id,
      name: `${token0}/${NATIVE_SYMBOL}`,
      address: pairs[token0],
      token0: tokens[token0],
      token1: wrapped,
      token0Decimals: marketTokens[token0].decimals,
      token1Decimals: 18,
      fee: 300,
      usdValueFrom,
      rewardPid,
    })),
    prices: {
      native: {
        everySeconds: PRICE_SECONDS,
        sources: [{ type: 'http', url: `${options.priceFeedUrl}/${NATIVE_SYMBOL}`, path: '$.price' }],
      },
    },
    supply: {
      initial: `${options.initialCoins}`,
      multicall3: MULTICALL3,
      locked: {
        validatorsStaking: market.validatorStaking,
        vesting: { team: market.vestingTeam, advisors: market.vestingAdvisors },
      },
    },
    points: pointsOf(market, options.deployer),
    // Refused webhooks are warnings, but the receiver already prints them.
    log: { level: 'error' },
  };
}
