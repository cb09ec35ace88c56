/**
 * Headers that answers have by where they come from.
 */

/** Where the wrapped bodies of spec 4.5 are in use, and a key is asked for. */
export const NOTIFICATIONS_PREFIX = '/api/notifications/';

/** Who may read an answer (WHATWG Fetch, CORS protocol): every site, as nothing that a browser knows of its user is used. */
export const SHARED = {
  'access-control-allow-origin': '*',
  'access-control-expose-headers': 'age, etag, link, x-request-id',
};

/** No answer is anything but its content type says. */
export const NO_SNIFF = { 'x-content-type-options': 'nosniff' };

/** Those of an error: of the public API every site may read it, also where there is no such path or method. */
export function errorHeadersOf(url: string): Record<string, string> {
  const isPublic = url.startsWith('/api/') && !url.startsWith(NOTIFICATIONS_PREFIX);
  return isPublic ? { ...NO_SNIFF, ...SHARED } : NO_SNIFF;
}
