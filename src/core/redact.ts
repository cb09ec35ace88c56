/**
 * URLs as they may be shown: node providers put their keys into paths, databases their passwords before the host.
 */

const HIDDEN = '…';

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
