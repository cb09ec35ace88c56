/**
 * Short forms of addresses, hashes and URLs. A short form is never used to confirm anything, because four digits at each end
 * can be forged.
 */

/** `0x7a25…9c3f` in lists. */
export const shortAddress = (address: string): string => cutMiddle(address, { head: 6, tail: 4 });

/** `0xa0c63833…4785c240` in headings. */
export const longAddress = (address: string): string => cutMiddle(address, { head: 10, tail: 8 });

/** The host of an origin or URL, with its port if that is not 443: `hooks.acme.example`. */
export function hostOf(url: string): string {
  const parsed = URL.parse(url);
  if (parsed === null) return url;
  const isPlain = parsed.protocol === 'http:';
  return isPlain ? `http://${parsed.host}` : parsed.host;
}

/** A URL without its scheme, for reading: `hooks.acme.example/v2/deposits`. */
export const withoutScheme = (url: string): string => url.replace(/^https:\/\//, '');

function cutMiddle(text: string, { head, tail }: { head: number; tail: number }): string {
  return text.length <= head + tail + 1 ? text : `${text.slice(0, head)}…${text.slice(-tail)}`;
}
