/**
 * Rules that hold between keys: things given twice, things that name each other, what one key makes necessary.
 */
import type { Finding } from './finding.ts';
import { childPointer, displayPath, findAt } from './pointer.ts';

/**
 * Everything that contradicts something else. The values may have other mistakes, and only what is well formed takes
 * part, so that one run reports all.
 */
export function checkRules(values: unknown): Finding[] {
  return [
    ...checkSecret(values),
    ...checkTokens(values),
    ...checkPairs(values),
    ...checkPriceSources(values),
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
  const symbols = entriesOf(values, '/tokens').map(({ pointer, key }) => ({
    pointer,
    value: key.toLowerCase(),
  }));
  const wrong = symbols.filter(
    ({ value }) => !/^[^\s/?#%]{1,32}$/.test(value) || ['native', 'reward'].includes(value),
  );
  return [
    ...wrong.map(({ pointer }) => ({
      pointer,
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

function checkPriceSources(values: unknown): Finding[] {
  const ids = new Set(entriesOf(values, '/pairs').map(({ value }) => findAt(value, '/id')));
  return entriesOf(values, '/prices/native/sources').flatMap(({ pointer, value }) => {
    const id = findAt(value, '/pair');
    if (findAt(value, '/type') !== 'pair' || typeof id !== 'number' || ids.has(id)) return [];
    return [{ pointer: childPointer(pointer, 'pair'), message: `no pair has the id ${id}` }];
  });
}

/** An address that is locked twice would be subtracted twice from the circulating supply (spec 4.4). */
function checkLocked(values: unknown): Finding[] {
  const staking = '/supply/locked/validatorsStaking';
  return repeated(
    [
      { pointer: staking, value: findAt(values, staking) },
      ...entriesOf(values, '/supply/locked/vesting'),
    ].map(lowerCase),
  );
}

type Entry = { pointer: string; value: unknown };

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

/** The entries of a list or a map, none where there is neither. */
function entriesOf(values: unknown, pointer: string): (Entry & { key: string })[] {
  const parent = findAt(values, pointer);
  if (typeof parent !== 'object' || parent === null) return [];
  return Object.entries(parent).map(([key, value]) => ({ pointer: childPointer(pointer, key), key, value }));
}
