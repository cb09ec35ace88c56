/**
 * USD prices of the demo's coins: slow and quick waves around a price. They depend only on the time, so
 * stopping and continuing the demo doesn't change them.
 */

const MIDDLE_USD = { ETH: 2_500, RWD: 0.5, USDT: 1, USDC: 1, SOL: 150, DOGE: 0.16, XRP: 0.6 } as const;

type PricedSymbol = keyof typeof MIDDLE_USD;

/** Periods from a day to some seconds, none a multiple of another, and the part of the price that each moves. */
const WAVES = [
  { periodSeconds: 86_000, part: 0.04 },
  { periodSeconds: 17_300, part: 0.02 },
  { periodSeconds: 2_900, part: 0.01 },
  { periodSeconds: 307, part: 0.005 },
  { periodSeconds: 41, part: 0.002 },
] as const;

/** The maximum deviation of a price from its middle, as a part of it. */
export const PART_MAX = WAVES.reduce((sum, { part }) => sum + part, 0);

const phases = { ETH: 0, RWD: 1.1, SOL: 2.3, DOGE: 3.7, XRP: 5.2 } as const;

/** USD for one coin at a time. Dollars are worth 1. A number instead of a decimal, because it is only a model. */
export function usdPriceAt(symbol: PricedSymbol, time: Date): number {
  if (symbol === 'USDT' || symbol === 'USDC') return MIDDLE_USD[symbol];
  const seconds = time.getTime() / 1000;
  const moved = WAVES.reduce(
    (sum, { periodSeconds, part }, index) =>
      sum + part * Math.sin((2 * Math.PI * seconds) / periodSeconds + phases[symbol] * (index + 1)),
    0,
  );
  return MIDDLE_USD[symbol] * (1 + moved);
}

export function isPriced(symbol: string): symbol is PricedSymbol {
  return Object.hasOwn(MIDDLE_USD, symbol);
}
