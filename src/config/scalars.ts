/**
 * The text types of the configuration (addresses, URLs, durations …): how each is checked and decoded.
 *
 * A `title` completes the sentence "must be …". A refinement returns the message of the problem, and after a line break
 * the suggestion.
 */
import { isIP } from 'node:net';
import ipaddr from 'ipaddr.js';
import Type from 'typebox';
import { databaseUrlProblem } from '../core/database-url.ts';
import { type Address, checksumAddress } from '../core/hex.ts';
import { parseJsonPath } from '../core/json-path.ts';
import { UNFIT_CHARACTERS } from '../core/stored-text.ts';

const ADDRESS_TITLE = 'an address: 0x and 40 hexadecimal digits';

/** An address, decoded to lower case. Digits of mixed case must satisfy the EIP-55 checksum. */
export const AddressText = Type.Decode(
  Type.Refine(
    Type.String({ title: ADDRESS_TITLE }),
    (text) => addressProblem(text) === undefined,
    (text) => addressProblem(text) ?? '',
  ),
  (text) => text.toLowerCase() as Address,
);

/** A contract of a rule: an address, or the name of an entry in `pairs` or `tokens`. */
export const ContractText = Type.Decode(
  Type.Refine(
    Type.String({ title: 'an address, pair:<id> or token:<symbol>' }),
    (text) => /^(pair:\d+|token:\S+)$/.test(text) || addressProblem(text) === undefined,
    (text) =>
      (text.startsWith('0x') && addressProblem(text)) || 'must be an address, pair:<id> or token:<symbol>',
  ),
  (text) => (text.startsWith('0x') ? text.toLowerCase() : text),
);

/** A type of transactions that Chainbell can't encode, decoded to lower case without leading zeros. */
export const TransactionTypeText = Type.Decode(
  Type.Refine(
    Type.String({ title: '"unsigned", or a transaction type from 0x5 to 0xff' }),
    (text) => text === 'unsigned' || (/^0x[0-9a-f]{1,2}$/i.test(text) && Number(text) > TYPE_MAX),
    () =>
      'must be "unsigned", or a transaction type from 0x5 to 0xff\nChainbell proves types 0x0 to 0x4, so they need no entry',
  ),
  (text) => (text === 'unsigned' ? text : `0x${Number(text).toString(16)}`),
);

/** The newest type of Ethereum (EIP-7702), as in `chain/rpc/parse.ts`. */
const TYPE_MAX = 4;

/** A JSON-RPC endpoint. */
export const RpcUrlText = urlText(['http', 'https', 'ws', 'wss']);

/** A URL for GET requests. */
export const HttpUrlText = urlText(['http', 'https']);

/** A PostgreSQL URL, possibly with several hosts. Empty means the embedded database. */
export const DatabaseUrlText = Type.Refine(
  Type.String({ title: 'a postgres:// or postgresql:// URL, or empty' }),
  (text) => text === '' || databaseUrlProblem(text) === undefined,
  (text) => databaseUrlProblem(text) ?? '',
);

/** 32 random bytes in base64, or empty. */
export const SecretText = Type.Refine(
  Type.String({ title: '32 bytes in base64' }),
  (text) => text === '' || (/^[A-Za-z0-9+/]+={0,2}$/.test(text) && Buffer.from(text, 'base64').length === 32),
  () => 'must be 32 bytes in base64\ngenerate one with: openssl rand -base64 32',
);

/** A network such as 10.0.0.0/8 or fd00::/8. */
export const CidrText = Type.Refine(
  Type.String({ title: 'a network such as 10.0.0.0/8' }),
  isCidr,
  (text) =>
    `must be a network such as 10.0.0.0/8${ipaddr.isValid(text) ? `\ndid you mean "${text}/${text.includes(':') ? 128 : 32}"?` : ''}`,
);

const DURATION_TITLE = 'a duration such as 30d, 12h, 90m or 45s';

/** A whole number of days, hours, minutes or seconds from `least` to `most`, decoded to milliseconds. */
const durationText = (range: DurationRange) =>
  Type.Codec(
    Type.Refine(
      Type.String({ title: DURATION_TITLE }),
      (text) => durationProblem(text, range) === undefined,
      (text) => durationProblem(text, range) ?? '',
    ),
  )
    .Decode(parseDurationMs)
    .Encode(formatDuration);

type DurationRange = { least: string; most: string };

/** Ten years: more than any rule about keeping such data asks for. */
const RETENTION_MOST = '3650d';

/** A retention of at least `least`. The description says its range. */
export const retentionText = (least: string, options: { default: string; description: string }) =>
  Type.With(durationText({ least, most: RETENTION_MOST }), {
    ...options,
    description: `${options.description} From ${least} to ${RETENTION_MOST}.`,
  });

/** An amount as exact decimal digits, at most 18 of them after the decimal point. */
export const DecimalText = Type.String({
  title: 'a decimal number in quotes, with at most 18 digits after the decimal point',
  pattern: '^\\d{1,60}(\\.\\d{1,18})?$',
});

/** A path to one value in a JSON document. */
export const JsonPathText = Type.Refine(
  Type.String({ title: 'a path into the JSON answer such as $.price' }),
  (text) => parseJsonPath(text) !== undefined,
  () => "must be a path into the JSON answer such as $.price or $['a'].b[0]",
);

/** The value of an HTTP header. */
export const HeaderText = Type.String({
  title: 'the value of a header: printable ASCII characters',
  pattern: '^[\\x20-\\x7e]{0,1000}$',
});

/** The minimum length makes guessing infeasible. */
export const AdminToken = Type.Union([Type.String({ pattern: '^[\\x21-\\x7e]{32,200}$' }), Type.Null()], {
  title: '32 to 200 characters without spaces, or null to turn the operator API off',
  default: null,
  description:
    'The bearer token of the operator API under /api/admin, which is off without it. Create one with `openssl rand -hex 32`.',
});

/** Whether the database can store the text as the name of something. */
export const isFitName = (text: string): boolean => !new RegExp(`[${UNFIT_CHARACTERS}]`, 'u').test(text);

const wordText = (charactersMax: number, title: string) =>
  Type.String({ title, pattern: `^[^\\s${UNFIT_CHARACTERS}]{1,${charactersMax}}$` });

/** The ticker of a coin or token. */
export const SymbolText = wordText(32, 'a symbol: 1 to 32 characters without spaces and control characters');

/** The category of awards. */
export const CategoryText = wordText(64, 'a word of up to 64 characters without control characters');

function addressProblem(text: string): string | undefined {
  const digits = /^0x([0-9a-fA-F]*)$/.exec(text)?.[1];
  if (digits === undefined) return `must be ${ADDRESS_TITLE}`;
  if (digits.length !== 40) return `must be ${ADDRESS_TITLE} (this has ${digits.length})`;
  if (digits === digits.toLowerCase() || digits === digits.toUpperCase()) return undefined;
  const spelling = checksumAddress(`0x${digits.toLowerCase()}`);
  if (spelling === text) return undefined;
  return `has a wrong EIP-55 checksum: check the digits\nif they are right, it is written ${spelling}`;
}

function urlText(schemes: string[]) {
  const last = schemes.at(-1);
  const title = `an ${schemes.slice(0, -1).join(', ')} or ${last} URL`;
  return Type.Refine(
    Type.String({ title }),
    (text) => {
      const url = URL.parse(text);
      return url !== null && schemes.includes(url.protocol.slice(0, -1));
    },
    () => `must be ${title}`,
  );
}

function isCidr(text: string): boolean {
  const [address = '', bits, ...rest] = text.split('/');
  if (bits === undefined || rest.length > 0 || !/^\d{1,3}$/.test(bits)) return false;
  // The library also takes 10.1 and 0x7f.1 for addresses; in a list that opens networks, only the plain form counts.
  if (ipaddr.IPv4.isValidFourPartDecimal(address)) return Number(bits) <= 32;
  return isIP(address) === 6 && ipaddr.IPv6.isValid(address) && Number(bits) <= 128;
}

const UNIT_MS: Record<string, number> = { d: 86_400_000, h: 3_600_000, m: 60_000, s: 1_000 };

function durationProblem(text: string, { least, most }: DurationRange): string | undefined {
  const [, count, unit] = /^(\d+)([a-zA-Z]+)$/.exec(text) ?? [];
  if (count === undefined || unit === undefined) return `must be ${DURATION_TITLE}`;
  if (UNIT_MS[unit] === undefined) return `has the unknown unit "${unit}"\nthe units are d, h, m and s`;
  const durationMs = parseDurationMs(text);
  const fits = durationMs >= parseDurationMs(least) && durationMs <= parseDurationMs(most);
  return fits ? undefined : `must be between ${least} and ${most}`;
}

function parseDurationMs(text: string): number {
  return Number(text.slice(0, -1)) * (UNIT_MS[text.slice(-1)] ?? Number.NaN);
}

/** A duration in the notation of the file, in the largest unit that divides it: 5400000 is 90m. */
export function formatDuration(durationMs: number): string {
  const found = Object.entries(UNIT_MS).find(([, unitMs]) => durationMs % unitMs === 0);
  return found === undefined ? `${durationMs}ms` : `${durationMs / found[1]}${found[0]}`;
}
