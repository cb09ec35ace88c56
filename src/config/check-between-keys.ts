/**
 * Checks keys against each other: duplicates, references to missing entries, and keys that another key requires.
 */
import { zeroAddress } from '../core/hex.ts';
import { nodeKeyOf } from '../domain/endpoint.ts';
import { checkPrices } from './check-prices.ts';
import { childPointer, displayPath, type Entry, entriesOf, findAt } from './pointer.ts';
import type { PointerProblem } from './problem.ts';
import { isFitName } from './scalars.ts';

const SYMBOL_LENGTH_MAX = 32;
const UNFIT_NAME = 'it has a control character, or one that is not valid Unicode';

/**
 * Reports contradictions between keys. It skips malformed values, which the schema check reports, so that one run
 * reports everything.
 */
export function checkBetweenKeys(values: unknown): PointerProblem[] {
  return [
    ...checkSecret(values),
    ...checkFurtherUrls(values),
    ...checkPorts(values),
    ...checkNodes(values),
    ...checkQuorum(values),
    ...checkUnprovedTypes(values),
    ...checkTokens(values),
    ...checkSeasons(values),
    ...checkPairs(values),
    ...checkPrices(values),
    ...checkLocked(values),
  ];
}

function checkSecret(values: unknown): PointerProblem[] {
  const url = findAt(values, '/database/url');
  const isNeeded = typeof url === 'string' && /^postgres/.test(url) && findAt(values, '/secret') === '';
  return isNeeded
    ? [
        {
          pointer: '/secret',
          message: 'is required when database.url is set',
          suggestion:
            'generate one with: openssl rand -base64 32 (for a move from the embedded database: the one in dataDir/secret)',
        },
      ]
    : [];
}

/** URLs beside database.url, without which the embedded database would be used. */
function checkFurtherUrls(values: unknown): PointerProblem[] {
  const isSet = (pointer: string) => !['', undefined].includes(findAt(values, pointer) as string);
  if (isSet('/database/url')) return [];
  return ['/database/sessionUrl', '/database/replicaUrl'].filter(isSet).map((pointer) => ({
    pointer,
    message: 'is set, but database.url is not',
    suggestion: 'set database.url (DATABASE_URL) too',
  }));
}

/** Two servers can't listen on one port of the same address. 0 is a free port for each. */
function checkPorts(values: unknown): PointerProblem[] {
  const [host, port] = [findAt(values, '/http/host'), findAt(values, '/http/port')];
  const other = findAt(values, '/metrics/host');
  const overlap = host === other || [host, other].some((one) => one === '0.0.0.0' || one === '::');
  return overlap && port !== 0 && port === findAt(values, '/metrics/port')
    ? [
        {
          pointer: '/metrics/port',
          message: `is ${String(port)}, as http.port is, and one port can't serve both the API and metrics`,
          suggestion: 'set metrics.port or http.port to another port',
        },
      ]
    : [];
}

/** A node that is listed twice would confirm its own answers about the head and about the checks its chain honors. */
function checkNodes(values: unknown): PointerProblem[] {
  const nodes = entriesOf(values, '/chain/rpc').map(({ pointer, value }) => {
    const url = typeof value === 'string' ? URL.parse(value) : null;
    if (url === null) return { pointer, value };
    // A ws URL beside the HTTP URL of the same node has no vote.
    return { pointer, value: `${/^ws/.test(url.protocol) ? 'ws' : 'http'} ${nodeKeyOf(url)}` };
  });
  return repeated(nodes).map(({ pointer, message }) => ({
    pointer,
    message: message.replace('is the same as', 'is the same node as'),
    suggestion: 'remove one of the two: each URL has a vote, and a node must not confirm its own answers',
  }));
}

function checkUnprovedTypes(values: unknown): PointerProblem[] {
  const types = entriesOf(values, '/chain/unprovedTypes').map(({ pointer, value }) => ({
    pointer,
    value: typeof value === 'string' ? value.toLowerCase() : value,
  }));
  if (types.length > 0 && findAt(values, '/chain/verify') === 'strict')
    return [
      {
        pointer: '/chain/unprovedTypes',
        message: 'contradicts chain.verify: strict uses only blocks that are proved in full',
        suggestion: 'remove the types, or set chain.verify to auto',
      },
    ];
  return repeated(types);
}

/** A quorum above the number of voting nodes would hold forever; WebSocket URLs don't vote. */
function checkQuorum(values: unknown): PointerProblem[] {
  const quorum = findAt(values, '/chain/quorum');
  const voters = entriesOf(values, '/chain/rpc').filter(
    ({ value }) => typeof value === 'string' && /^https?:/i.test(value),
  ).length;
  if (typeof quorum !== 'number' || voters === 0 || quorum <= voters) return [];
  return [
    {
      pointer: '/chain/quorum',
      message: `is above the number of HTTP nodes in chain.rpc, which is ${voters}`,
      suggestion: 'add nodes, or use "auto"',
    },
  ];
}

/** A token answers at /api/price/<symbol in lower case>, beside `native` and `reward` (spec 4.2). */
function checkTokens(values: unknown): PointerProblem[] {
  return [...checkSymbols(values, '/tokens'), ...checkSymbols(values, '/prices/tokens')];
}

function checkSymbols(values: unknown, pointer: string): PointerProblem[] {
  const symbols = entriesOf(values, pointer).map((entry) => ({
    pointer: entry.pointer,
    value: entry.key.toLowerCase(),
  }));
  return [
    ...symbols.flatMap(({ pointer, value }) => {
      const message = faultOfSymbol(value);
      return message === undefined ? [] : [{ pointer, at: 'key' as const, message }];
    }),
    ...repeated(symbols).map((problem) => ({ ...problem, at: 'key' as const })),
  ];
}

/** Awards name the seasons that they were multiplied by. */
function checkSeasons(values: unknown): PointerProblem[] {
  return entriesOf(values, '/points/seasons').flatMap(({ pointer, key }) =>
    isFitName(key) ? [] : [{ pointer, at: 'key', message: `cannot name a season: ${UNFIT_NAME}` }],
  );
}

function faultOfSymbol(symbol: string): string | undefined {
  if (symbol.length === 0 || symbol.length > SYMBOL_LENGTH_MAX)
    return `must have 1 to ${SYMBOL_LENGTH_MAX} characters, and has ${symbol.length}`;
  if (/[\s/?#%]/.test(symbol))
    return 'cannot be a symbol: it ends the path /api/price/…, so it has no spaces and none of / ? # %';
  if (!isFitName(symbol)) return `cannot be a symbol: ${UNFIT_NAME}`;
  if (['native', 'reward'].includes(symbol))
    return 'cannot be a symbol: it ends the path /api/price/…, where native and reward are taken';
  return undefined;
}

function checkPairs(values: unknown): PointerProblem[] {
  const fields = (key: string) =>
    entriesOf(values, '/pairs').map(({ pointer }) => ({
      pointer: childPointer(pointer, key),
      value: findAt(values, childPointer(pointer, key)),
    }));
  return [
    ...repeated(fields('id')),
    ...repeated(fields('address').map(lowerCase)),
    ...checkPairTokens(values),
    ...checkWrapped(values, fields('token1').map(lowerCase)),
  ];
}

/** The tokens of a pair differ, and have the decimals that `tokens` says. */
function checkPairTokens(values: unknown): PointerProblem[] {
  const listed = new Map(
    entriesOf(values, '/tokens').map(({ pointer, value }) => [
      lowerCase({ pointer, value: findAt(value, '/address') }).value,
      { pointer: childPointer(pointer, 'decimals'), value: findAt(value, '/decimals') },
    ]),
  );
  return entriesOf(values, '/pairs').flatMap(({ pointer, value }) => {
    const entryOf = (key: string) =>
      lowerCase({ pointer: childPointer(pointer, key), value: findAt(value, `/${key}`) });
    const decimals = ['token0', 'token1'].flatMap((token) => {
      const [own, known] = [entryOf(`${token}Decimals`), listed.get(entryOf(token).value)];
      if (typeof own.value !== 'number' || typeof known?.value !== 'number' || own.value === known.value)
        return [];
      const message = `is not ${known.value}, which ${displayPath(known.pointer)} says of the same token`;
      return [{ pointer: own.pointer, message }];
    });
    return [...repeated([entryOf('token0'), entryOf('token1')]), ...decimals];
  });
}

/** Without chain.native.wrapped it is token1 of every pair (spec 2.3), which must then be one token. */
function checkWrapped(values: unknown, token1s: readonly Entry[]): PointerProblem[] {
  if (findAt(values, '/chain/native/wrapped') !== undefined) return [];
  const known = token1s.filter(({ value }) => typeof value === 'string');
  const other = known.find(({ value }) => value !== known[0]?.value);
  return other === undefined || known[0] === undefined
    ? []
    : [
        {
          pointer: other.pointer,
          message: `is not ${displayPath(known[0].pointer)}, and only one can be the wrapped native coin`,
          suggestion: 'set chain.native.wrapped to the right one',
        },
      ];
}

/** An address that is locked twice would be subtracted twice from the circulating supply (spec 4.4). */
function checkLocked(values: unknown): PointerProblem[] {
  const staking = '/supply/locked/validatorsStaking';
  const locked = [
    { pointer: staking, value: findAt(values, staking) },
    ...entriesOf(values, '/supply/locked/vesting'),
  ].map(lowerCase);
  const burnt = locked.filter(({ value }) => value === zeroAddress);
  return [
    ...burnt.map(({ pointer }) => ({
      pointer,
      message: 'is the burn address, whose balance is always subtracted',
    })),
    ...repeated(locked),
  ];
}

function lowerCase({ pointer, value }: Entry): Entry {
  return { pointer, value: typeof value === 'string' ? value.toLowerCase() : value };
}

function repeated(entries: readonly Entry[]): PointerProblem[] {
  const firsts = new Map<unknown, string>();
  return entries.flatMap(({ pointer, value }) => {
    if (typeof value !== 'string' && typeof value !== 'number') return [];
    const first = firsts.get(value);
    if (first === undefined) firsts.set(value, pointer);
    return first === undefined ? [] : [{ pointer, message: `is the same as ${displayPath(first)}` }];
  });
}
