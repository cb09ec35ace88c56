/**
 * Headers that answers have by where they come from.
 */

/** Where the wrapped bodies of spec 4.5 are in use, and a key is asked for. */
export const NOTIFICATIONS_PREFIX = '/api/notifications/';

/** The operator API, which asks for a token of the configuration. */
export const ADMIN_PREFIX = '/api/admin/';

/** Whether a path asks for a key or token: its bodies are wrapped, and other sites may not read them. */
export const isKeyed = (url: string) => url.startsWith(NOTIFICATIONS_PREFIX) || url.startsWith(ADMIN_PREFIX);

/** Who may read an answer (WHATWG Fetch, CORS protocol): every site, as nothing that a browser knows of its user is used. */
export const SHARED = {
  'access-control-allow-origin': '*',
  'access-control-expose-headers':
    'age, etag, link, x-request-id, chainbell-price-age, chainbell-price-stale, chainbell-volume-complete',
};

/** No answer is anything but its content type says. */
export const NO_SNIFF = { 'x-content-type-options': 'nosniff' };

/** Those of an error: of the public API every site may read it, also where there is no such path or method. */
export function errorHeadersOf(url: string): Record<string, string> {
  const isPublic = url.startsWith('/api/') && !isKeyed(url);
  return isPublic ? { ...NO_SNIFF, ...SHARED } : NO_SNIFF;
}
