/**
 * Path prefixes of routes with a key, and the headers that responses have because of their path.
 */

/** Routes with an API key. Their bodies are wrapped (spec 4.5). */
export const NOTIFICATIONS_PREFIX = '/api/notifications/';

/** The operator API. It requires `http.adminToken`. */
export const ADMIN_PREFIX = '/api/admin/';

/** Whether a path requires a key or token. Its bodies are wrapped, and pages of other sites can't read them. */
export function isKeyed(url: string): boolean {
  const path = decoded(url);
  return path.startsWith(NOTIFICATIONS_PREFIX) || path.startsWith(ADMIN_PREFIX);
}

/** The path, and what follows it, as the router reads it: a client may encode any character (RFC 3986, section 2.1), or send the whole URL (RFC 9112, section 3.2.2). */
function decoded(url: string): string {
  if (url.startsWith('/') && !url.includes('%')) return url;
  const [path = ''] = (url.startsWith('/') ? url : url.replace(/^https?:\/\/[^/?#]*/i, '')).split(/[?#]/, 1);
  if (!path.includes('%')) return path;
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/** Pages of any site may read public responses (WHATWG Fetch, CORS protocol), because these depend on no credentials. */
export const SHARED = {
  'access-control-allow-origin': '*',
  'access-control-expose-headers':
    'age, etag, link, retry-after, x-request-id, chainbell-price-age, chainbell-price-stale, chainbell-volume-complete',
};

/** Keeps browsers from guessing another content type. */
export const NO_SNIFF = { 'x-content-type-options': 'nosniff' };

/** The headers of an error. Any site may read those of the public API, also for an unknown path or method. */
export function errorHeadersOf(url: string): Record<string, string> {
  const isPublic = decoded(url).startsWith('/api/') && !isKeyed(url);
  return isPublic ? { ...NO_SNIFF, ...SHARED } : NO_SNIFF;
}
