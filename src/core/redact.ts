/**
 * URLs as they may be shown: node providers put their keys into paths, databases their passwords before the host.
 */
import { basicCredentials, decodePercent } from './basic-auth.ts';

export const HIDDEN = '…';

/** Words such as `v3`, `eth` or `rpc` are no secrets, and messages need them: parts of a path with fewer characters. */
const PATH_PART_CHARACTERS_MIN = 8;
/** Fewer characters, wherever they stand, would hide half of every message. */
const SECRET_CHARACTERS_MIN = 3;
/** A secret with fewer characters is hidden only as a word. */
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
 * parts, as written and decoded. Nodes repeat them in their errors.
 */
export function redactorOf(url: string): (text: string) => string {
  const { username, password, pathname, search, searchParams, hash } = new URL(url);
  const hasUser = username !== '' || password !== '';
  const written = [
    ...[`${pathname}${search}`, pathname, search, hash.slice(1), username, password],
    ...(hasUser ? [`${username}:${password}`, basicCredentials(url) ?? ''] : []),
    ...pathname.split('/').filter(isTelling),
    ...searchParams.values(),
  ];
  const secrets = new Set(
    [...written, ...written.map(decodePercent)].filter((text) => text.length >= SECRET_CHARACTERS_MIN),
  );
  if (secrets.size === 0) return (text) => text;
  const longestFirst = [...secrets].sort((one, other) => other.length - one.length);
  const pattern = new RegExp(longestFirst.map(patternOf).join('|'), 'g');
  return (text) => text.replace(pattern, HIDDEN);
}

const isTelling = (part: string) =>
  part.length >= PATH_PART_CHARACTERS_MIN || (part.length > SECRET_CHARACTERS_MIN && /\d/.test(part));

function patternOf(secret: string): string {
  const escaped = RegExp.escape(secret);
  if (secret.length >= LONG_SECRET_CHARACTERS_MIN) return escaped;
  return `${/^\w/.test(secret) ? '(?<!\\w)' : ''}${escaped}(?!\\w)`;
}
