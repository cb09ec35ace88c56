/**
 * What the configuration says about the chain and the features of the API, for GET /api/chain.
 */
import type { ChainDescription } from '../api/context.ts';
import type { Config } from '../config/schema.ts';
import type { Address } from '../core/hex.ts';
import { chainName } from '../domain/chain-name.ts';

/** The tokens that the configuration names. Tokens of pairs get their symbols from the names of the pairs. */
export function describeChain(config: Config): ChainDescription {
  const { chain, tokens, pairs, prices, points, supply, http } = config;
  const known = new Map<Address, { address: Address; symbol: string; decimals: number }>();
  const add = (address: Address, symbol: string | undefined, decimals: number): void => {
    if (symbol !== undefined && !known.has(address)) known.set(address, { address, symbol, decimals });
  };
  for (const [symbol, { address, decimals }] of Object.entries(tokens)) add(address, symbol, decimals);
  for (const { name, token0, token1, token0Decimals, token1Decimals } of pairs) {
    const [symbol0, symbol1] = splitName(name);
    add(token0, symbol0, token0Decimals);
    add(token1, symbol1, token1Decimals);
  }
  return {
    id: chain.id,
    name: chainName(chain.id),
    has: {
      points: points.rules.length > 0,
      prices: prices.native !== undefined || Object.keys(prices.tokens).length > 0,
      pairs: pairs.length > 0,
      supply: supply !== undefined,
      admin: http.adminToken !== null,
    },
    tokens: [...known.values()],
  };
}

/** The symbols in the name of a pair. Nothing for a name of another form than TOKEN0/TOKEN1. */
function splitName(name: string): readonly (string | undefined)[] {
  const symbols = name.split('/').map((symbol) => symbol.trim());
  return symbols.length === 2 && symbols.every((symbol) => symbol !== '') ? symbols : [];
}
