/**
 * Checks price feeds against the rest of the configuration: the pairs they use, their symbols and their ages.
 */
import { childPointer, type Entry, entriesOf, findAt } from './pointer.ts';
import type { PointerProblem } from './problem.ts';

/** Reports contradictions between price feeds and other keys. */
export function checkPrices(values: unknown): PointerProblem[] {
  const native = { pointer: '/prices/native', value: findAt(values, '/prices/native') };
  const tokens = entriesOf(values, '/prices/tokens');
  return [
    ...checkCoins(values),
    ...checkFeedSymbols(values, tokens),
    ...[native, ...tokens].flatMap(checkAge),
    ...[native, ...tokens].flatMap(({ pointer }) =>
      entriesOf(values, childPointer(pointer, 'sources')).flatMap(checkHeaders),
    ),
    ...sourcesOfPairs(values, native.pointer).flatMap((source) => checkNativePair(values, source)),
    ...tokens.flatMap(({ pointer, key }) =>
      sourcesOfPairs(values, pointer).flatMap((source) => checkTokenPair(values, key, source)),
    ),
  ];
}

/** Their symbols tell the prices of the native coin and the reward token apart. */
function checkCoins(values: unknown): PointerProblem[] {
  const pointer = '/chain/reward/symbol';
  const symbol = findAt(values, pointer);
  if (lowerCase(symbol) === undefined || !isSymbol(symbol, findAt(values, '/chain/native/symbol'))) return [];
  return [
    {
      pointer,
      message: `is ${String(symbol)}, as chain.native.symbol is, but prices are found by their symbol`,
      suggestion: 'set it to the symbol of the reward token',
    },
  ];
}

/** The symbol identifies a feed, so no two feeds may share one. */
function checkFeedSymbols(values: unknown, tokens: readonly (Entry & { key: string })[]): PointerProblem[] {
  const known = entriesOf(values, '/tokens').map(({ key }) => key);
  return tokens.flatMap(({ pointer, key }) => {
    const say = (message: string) => [{ pointer, at: 'key' as const, message }];
    const coin = coinOf(values, key);
    if (coin !== undefined) return say(`is ${coin}`);
    const spelling = known.find((symbol) => isSymbol(symbol, key));
    return spelling === undefined || spelling === key ? [] : say(`is written ${spelling} in tokens`);
  });
}

/** Which coin has this symbol, and where its price comes from instead. */
function coinOf(values: unknown, symbol: string): string | undefined {
  if (isSymbol(symbol, findAt(values, '/chain/native/symbol')))
    return 'the native coin, whose feed is prices.native';
  if (isSymbol(symbol, findAt(values, '/chain/reward/symbol')))
    return 'the reward token, whose price comes from pair 1';
  return undefined;
}

const isSymbol = (one: unknown, other: unknown) => lowerCase(one) === lowerCase(other);

function checkAge({ pointer, value }: Entry): PointerProblem[] {
  const [everySeconds, maxAgeSeconds] = [findAt(value, '/everySeconds'), findAt(value, '/maxAgeSeconds')];
  if (typeof everySeconds !== 'number' || typeof maxAgeSeconds !== 'number') return [];
  if (maxAgeSeconds >= everySeconds) return [];
  const message = `must be at least everySeconds (${everySeconds}): a price would be too old before the next one`;
  return [{ pointer: childPointer(pointer, 'maxAgeSeconds'), message }];
}

/** RFC 9110, section 5.1. */
function checkHeaders({ pointer, value }: Entry): PointerProblem[] {
  const headers = entriesOf(value, '/headers');
  const wrong = headers.filter(({ key }) => !/^[\w!#$%&'*+.^`|~-]{1,100}$/.test(key));
  return wrong.map((header) => ({
    pointer: pointer + header.pointer,
    at: 'key' as const,
    message: 'is not a valid name of an HTTP header',
  }));
}

type PairSource = { pointer: string; pair: unknown; id: number };

function sourcesOfPairs(values: unknown, feed: string): PairSource[] {
  const pairs = entriesOf(values, '/pairs').map(({ value }) => value);
  return entriesOf(values, childPointer(feed, 'sources')).flatMap(({ pointer, value }) => {
    const id = findAt(value, '/pair');
    if (findAt(value, '/type') !== 'pair' || typeof id !== 'number') return [];
    const pair = pairs.find((one) => findAt(one, '/id') === id);
    return [{ pointer: childPointer(pointer, 'pair'), pair, id }];
  });
}

/** The other token of the pair needs a USD value that doesn't depend on the native coin. */
function checkNativePair(values: unknown, source: PairSource): PointerProblem[] {
  const { pointer, id } = source;
  const token = tokenOf(values, source);
  if (typeof token !== 'string') return token;
  if (typeof findAt(findToken(values, token), '/usd') === 'number') return [];
  return [
    { pointer, message: `pair ${id} gives no price in USD, because its other token has no usd under tokens` },
  ];
}

function checkTokenPair(values: unknown, symbol: string, source: PairSource): PointerProblem[] {
  const { pointer, id } = source;
  const token = tokenOf(values, source);
  if (typeof token !== 'string') return token;
  const address = lowerCase(findAt(values, `${childPointer('/tokens', symbol)}/address`));
  if (address !== undefined && address !== token)
    return [{ pointer, message: `pair ${id} has no token with the address of tokens.${symbol}` }];
  if (findAt(values, '/prices/native') !== undefined) return [];
  return [
    { pointer, message: `pair ${id} gives the price in the native coin, but prices.native is not set` },
  ];
}

/** The token of the pair that is not the native coin, or the problem of the pair. */
function tokenOf(values: unknown, { pointer, pair, id }: PairSource): string | PointerProblem[] {
  if (pair === undefined) return [{ pointer, message: `no pair has the id ${id}` }];
  const [token0, token1] = [lowerCase(findAt(pair, '/token0')), lowerCase(findAt(pair, '/token1'))];
  const wrapped = findAt(values, '/chain/native/wrapped') ?? findAt(values, '/pairs/0/token1');
  const token = token1 === lowerCase(wrapped) ? token0 : token0 === lowerCase(wrapped) ? token1 : undefined;
  return token ?? [{ pointer, message: `pair ${id} does not hold the native coin` }];
}

function findToken(values: unknown, address: unknown): unknown {
  const wanted = lowerCase(address);
  const tokens = entriesOf(values, '/tokens').map(({ value }) => value);
  return tokens.find((token) => wanted !== undefined && lowerCase(findAt(token, '/address')) === wanted);
}

const lowerCase = (value: unknown) => (typeof value === 'string' ? value.toLowerCase() : undefined);
