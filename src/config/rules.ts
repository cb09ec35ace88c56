/**
 * Rules that hold between keys: things given twice, things that name each other, what one key makes necessary.
 */
import { zeroAddress } from '../core/hex.ts';
import { type Entry, entriesOf } from './entries.ts';
import type { Finding } from './finding.ts';
import { childPointer, displayPath, findAt } from './pointer.ts';
import { checkPrices } from './price-rules.ts';

/**
 * Everything that contradicts something else. The values may have other mistakes, and only what is well formed takes
 * part, so that one run reports all.
 */
export function checkRules(values: unknown): Finding[] {
  return [
    ...checkSecret(values),
    ...checkTokens(values),
    ...checkPairs(values),
    ...checkPrices(values),
    ...checkLocked(values),
  ];
}

function checkSecret(values: unknown): Finding[] {
  const url = findAt(values, '/database/url');
  const isNeeded = typeof url === 'string' && /^postgres/.test(url) && findAt(values, '/secret') === '';
  return isNeeded
    ? [
        {
          pointer: '/secret',
          message: 'is required when database.url is set',
          suggestion: 'make one with: openssl rand -base64 32',
        },
      ]
    : [];
}

/** A token answers at /api/price/<symbol in lower case>, beside `native` and `reward` (spec 4.2). */
function checkTokens(values: unknown): Finding[] {
  return [...checkSymbols(values, '/tokens'), ...checkSymbols(values, '/prices/tokens')];
}

function checkSymbols(values: unknown, pointer: string): Finding[] {
  const symbols = entriesOf(values, pointer).map((entry) => ({
    pointer: entry.pointer,
    value: entry.key.toLowerCase(),
  }));
  const wrong = symbols.filter(
    ({ value }) => !/^[^\s/?#%]{1,32}$/.test(value) || ['native', 'reward'].includes(value),
  );
  return [
    ...wrong.map((symbol) => ({
      pointer: symbol.pointer,
      at: 'key' as const,
      message: 'cannot be a symbol: it ends the path /api/price/…, where native and reward are taken',
    })),
    ...repeated(symbols).map((finding) => ({ ...finding, at: 'key' as const })),
  ];
}

function checkPairs(values: unknown): Finding[] {
  const fields = (key: string) =>
    entriesOf(values, '/pairs').map(({ pointer }) => ({
      pointer: childPointer(pointer, key),
      value: findAt(values, childPointer(pointer, key)),
    }));
  return [...repeated(fields('id')), ...repeated(fields('address').map(lowerCase))];
}

/** An address that is locked twice would be subtracted twice from the circulating supply (spec 4.4). */
function checkLocked(values: unknown): Finding[] {
  const staking = '/supply/locked/validatorsStaking';
  const locked = [
    { pointer: staking, value: findAt(values, staking) },
    ...entriesOf(values, '/supply/locked/vesting'),
  ].map(lowerCase);
  const burnt = locked.filter(({ value }) => value === zeroAddress);
  return [
    ...burnt.map(({ pointer }) => ({
      pointer,
      message: 'is the burn address, whose balance is subtracted anyway',
    })),
    ...repeated(locked),
  ];
}

function lowerCase({ pointer, value }: Entry): Entry {
  return { pointer, value: typeof value === 'string' ? value.toLowerCase() : value };
}

function repeated(entries: readonly Entry[]): Finding[] {
  const firsts = new Map<unknown, string>();
  return entries.flatMap(({ pointer, value }) => {
    if (typeof value !== 'string' && typeof value !== 'number') return [];
    const first = firsts.get(value);
    if (first === undefined) firsts.set(value, pointer);
    return first === undefined ? [] : [{ pointer, message: `is the same as ${displayPath(first)}` }];
  });
}
