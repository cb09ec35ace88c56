/**
 * Removes secrets from URLs before display: node URLs have API keys in their paths, database URLs have passwords.
 */
import { basicCredentials, decodePercent } from './basic-auth.ts';

export const HIDDEN = '…';

/** Shorter parts of a path, such as `v3`, `eth` or `rpc`, are not secrets, and messages need them. */
const PATH_PART_CHARACTERS_MIN = 8;
/** Shorter texts are not hidden, because they occur in every message. */
const SECRET_CHARACTERS_MIN = 3;
/** A shorter secret is hidden only as a whole word. */
const LONG_SECRET_CHARACTERS_MIN = 8;

/**
 * Scheme and host of a URL. Credentials, path, query and fragment become `/…`. Text that isn't a URL with a host becomes
 * `…`.
 */
export function redactUrl(url: string): string {
  const parsed = URL.parse(url);
  if (parsed === null || parsed.host === '') return HIDDEN;
  const origin = `${parsed.protocol}//${parsed.host}`;
  const bare = [origin, `${origin}/`];
  return bare.includes(parsed.href) ? origin : `${origin}/${HIDDEN}`;
}

/** A database URL without its passwords. User, hosts, database and options stay readable. Several hosts are allowed. */
export function redactDatabaseUrl(url: string): string {
  return url
    .replace(/^([^:/?#]+:\/\/[^:@/?#]*):.*@/s, `$1:${HIDDEN}@`)
    .replace(/([?&][^=&]*password=)[^&#]*/gi, `$1${HIDDEN}`);
}

/**
 * Returns a function that hides the URL's secrets in a text: credentials, path, query and fragment, whole and in parts, as
 * written and decoded, in any letter case. Nodes and proxies repeat them in their errors.
 */
export function redactorOf(url: string): (text: string) => string {
  const pattern = patternOf(secretsOf(url));
  return pattern === undefined ? (text) => text : (text) => text.replace(pattern, HIDDEN);
}

function secretsOf(url: string): string[] {
  const { username, password, pathname, search, hash } = new URL(url);
  const hasUser = username !== '' || password !== '';
  // Split the query as written, because decoding turns a plus sign into a space. A key may be a name without a value.
  const pairs = search
    .slice(1)
    .split('&')
    .map((pair) => pair.split(/=(.*)/s));
  const written = [
    ...[`${pathname}${search}`, pathname, search, hash.slice(1), username, password],
    ...(hasUser ? [`${username}:${password}`, ...basicForms(url)] : []),
    ...pairs.flatMap(([name = '', value = '']) => {
      const values = [value, value.replaceAll('+', ' ')];
      return value === '' || isTelling(name) ? [name, ...values] : values;
    }),
    ...[pathname, decodeEscapes(pathname)].flatMap((text) => text.split(PATH_DELIMITERS)).filter(isTelling),
  ];
  const decoded = written.map(decodeEscapes);
  const plain = [...written, ...decoded, ...decoded.map(decodeEscapes)];
  const forms = [...plain, ...plain.flatMap(encodedForms)];
  return [...new Set(forms)].filter((text) => text.length >= SECRET_CHARACTERS_MIN);
}

/** Separators of path parts. Some nodes expect keys behind them (`/rpc;key=…`, `/project:key`). */
const PATH_DELIMITERS = /[/;,:=&@!|]/;

const isTelling = (part: string) =>
  part.length >= PATH_PART_CHARACTERS_MIN || (part.length > SECRET_CHARACTERS_MIN && /\d/.test(part));

/** `user:password` in base64, without padding, and in base64url. */
function basicForms(url: string): string[] {
  const basic = basicCredentials(url) ?? '';
  const bare = basic.replace(/=+$/, '');
  return [basic, bare, bare.replaceAll('+', '-').replaceAll('/', '_')];
}

/** Decodes valid escapes and leaves invalid ones. */
const decodeEscapes = (text: string) => text.replace(/(%[0-9a-f]{2})+/gi, decodePercent);

/** The escaped forms of clients and proxies that escape more than a URL needs. A lone surrogate can't be escaped. */
function encodedForms(text: string): string[] {
  if (!text.isWellFormed()) return [];
  const encoded = encodeURIComponent(text);
  return [encoded, encoded.replaceAll('%20', '+'), JSON.stringify(text).slice(1, -1)];
}

/** Matches any of the secrets, the longest first. Undefined if there are none. */
function patternOf(secrets: readonly string[]): RegExp | undefined {
  if (secrets.length === 0) return undefined;
  const longestFirst = [...secrets].sort((one, other) => other.length - one.length);
  return new RegExp(longestFirst.map(wordOf).join('|'), 'gi');
}

function wordOf(secret: string): string {
  const escaped = RegExp.escape(secret);
  if (secret.length >= LONG_SECRET_CHARACTERS_MIN) return escaped;
  return `${/^\w/.test(secret) ? '(?<!\\w)' : ''}${escaped}(?!\\w)`;
}
