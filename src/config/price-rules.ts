/**
 * Rules of the price feeds: what a pair can tell the price of, which symbols have feeds, what would always be too old.
 */
import { type Entry, entriesOf } from './entries.ts';
import type { Finding } from './finding.ts';
import { childPointer, findAt } from './pointer.ts';

/** Everything about prices that contradicts something else. */
export function checkPrices(values: unknown): Finding[] {
  const native = { pointer: '/prices/native', value: findAt(values, '/prices/native') };
  const tokens = entriesOf(values, '/prices/tokens');
  return [
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

/** Rows of the price feed are distinguished by their symbols. */
function checkFeedSymbols(values: unknown, tokens: readonly (Entry & { key: string })[]): Finding[] {
  const known = entriesOf(values, '/tokens').map(({ key }) => key);
  return tokens.flatMap(({ pointer, key }) => {
    const is = (symbol: unknown) => typeof symbol === 'string' && symbol.toLowerCase() === key.toLowerCase();
    const say = (message: string) => [{ pointer, at: 'key' as const, message }];
    if (is(findAt(values, '/chain/native/symbol'))) return say('is the native coin: it is prices.native');
    if (is(findAt(values, '/chain/reward/symbol')))
      return say('is the reward token: its price is that of pair 1 in the native coin');
    const spelling = known.find(is);
    return spelling === undefined || spelling === key ? [] : say(`is written ${spelling} in tokens`);
  });
}

function checkAge({ pointer, value }: Entry): Finding[] {
  const [everySeconds, maxAgeSeconds] = [findAt(value, '/everySeconds'), findAt(value, '/maxAgeSeconds')];
  if (typeof everySeconds !== 'number' || typeof maxAgeSeconds !== 'number') return [];
  if (maxAgeSeconds >= everySeconds) return [];
  const message = `must be at least everySeconds (${everySeconds}): a price would be too old before the next one`;
  return [{ pointer: childPointer(pointer, 'maxAgeSeconds'), message }];
}

/** RFC 9110, section 5.1. */
function checkHeaders({ pointer, value }: Entry): Finding[] {
  const headers = entriesOf(value, '/headers');
  const wrong = headers.filter(({ key }) => !/^[\w!#$%&'*+.^`|~-]{1,100}$/.test(key));
  return wrong.map((header) => ({
    pointer: pointer + header.pointer,
    at: 'key' as const,
    message: 'cannot be the name of a header',
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

/** The other token of the pair must have a value that does not come from the native coin. */
function checkNativePair(values: unknown, source: PairSource): Finding[] {
  const { pointer, id } = source;
  const token = tokenOf(values, source);
  if (typeof token !== 'string') return token;
  if (typeof findAt(findToken(values, token), '/usd') === 'number') return [];
  return [
    { pointer, message: `pair ${id} tells no price in USD: its other token is none of tokens with usd` },
  ];
}

function checkTokenPair(values: unknown, symbol: string, source: PairSource): Finding[] {
  const { pointer, id } = source;
  const token = tokenOf(values, source);
  if (typeof token !== 'string') return token;
  const address = lowerCase(findAt(values, `${childPointer('/tokens', symbol)}/address`));
  if (address !== undefined && address !== token)
    return [{ pointer, message: `pair ${id} has no token with the address of tokens.${symbol}` }];
  if (findAt(values, '/prices/native') !== undefined) return [];
  return [
    { pointer, message: `pair ${id} tells the price in the native coin, and prices.native is not given` },
  ];
}

/** The token of the pair that is not the native coin, or what is wrong with the pair. */
function tokenOf(values: unknown, { pointer, pair, id }: PairSource): string | Finding[] {
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
