/**
 * Removes secrets from URLs before display: node URLs have API keys in their paths, database URLs have passwords.
 */
import { basicCredentials, decodePercent } from './basic-auth.ts';

export const HIDDEN = '…';

/** Words such as `v3`, `eth` or `rpc` are no secrets, and messages need them: parts of a path with fewer characters. */
const PATH_PART_CHARACTERS_MIN = 8;
/** Hiding shorter texts anywhere would hide half of every message. */
const SECRET_CHARACTERS_MIN = 3;
/** A shorter secret is hidden only as a whole word. */
const LONG_SECRET_CHARACTERS_MIN = 8;

/**
 * Scheme and host of a URL; credentials, path, query and fragment become `/…`. Text that is not a URL with a host
 * is hidden whole.
 */
export function redactUrl(url: string): string {
  const parsed = URL.parse(url);
  if (parsed === null || parsed.host === '') return HIDDEN;
  const origin = `${parsed.protocol}//${parsed.host}`;
  const bare = [origin, `${origin}/`];
  return bare.includes(parsed.href) ? origin : `${origin}/${HIDDEN}`;
}

/** A database URL (several hosts allowed) without its passwords; user, hosts, database and options stay readable. */
export function redactDatabaseUrl(url: string): string {
  return url
    .replace(/^([^:/?#]+:\/\/[^:@/?#]*):.*@/s, `$1:${HIDDEN}@`)
    .replace(/([?&][^=&]*password=)[^&#]*/gi, `$1${HIDDEN}`);
}

/**
 * Hides everything in a text that only the URL's owner should know: credentials, path, query and fragment, whole and in
 * parts, as written and decoded, in any case. Nodes and proxies repeat them in their errors.
 */
export function redactorOf(url: string): (text: string) => string {
  const pattern = patternOf(secretsOf(url));
  return pattern === undefined ? (text) => text : (text) => text.replace(pattern, HIDDEN);
}

function secretsOf(url: string): string[] {
  const { username, password, pathname, search, hash } = new URL(url);
  const hasUser = username !== '' || password !== '';
  // As written, because decoding makes a space of a plus sign. A key may be a name without a value.
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

/** Between the parts of a path, some of which providers use for keys (`/rpc;key=…`, `/project:key`). */
const PATH_DELIMITERS = /[/;,:=&@!|]/;

const isTelling = (part: string) =>
  part.length >= PATH_PART_CHARACTERS_MIN || (part.length > SECRET_CHARACTERS_MIN && /\d/.test(part));

/** `user:password` in base64, also as it is in URLs and without what pads it. */
function basicForms(url: string): string[] {
  const basic = basicCredentials(url) ?? '';
  const bare = basic.replace(/=+$/, '');
  return [basic, bare, bare.replaceAll('+', '-').replaceAll('/', '_')];
}

/** Decodes valid escapes and leaves invalid ones. */
const decodeEscapes = (text: string) => text.replace(/(%[0-9a-f]{2})+/gi, decodePercent);

/** As clients and proxies escape it that escape more than a URL needs. Half a character can't be escaped. */
function encodedForms(text: string): string[] {
  if (!text.isWellFormed()) return [];
  const encoded = encodeURIComponent(text);
  return [encoded, encoded.replaceAll('%20', '+'), JSON.stringify(text).slice(1, -1)];
}

/** Matches each of them, the longest first; undefined without any. */
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
