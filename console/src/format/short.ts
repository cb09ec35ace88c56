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

/**
 * A URL without its scheme, for reading: `hooks.acme.example/v2/deposits`. Other letters than ASCII are shown as they are sent,
 * because they can look like another host or turn the reading direction.
 */
export const withoutScheme = (url: string): string =>
  (/^[\x20-\x7e]*$/.test(url) ? url : (URL.parse(url)?.href ?? visible(url))).replace(/^https:\/\//, '');

/** Control characters, and those that are invisible or turn the reading direction. */
const HIDDEN = /(?![\n\r\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

/** Text of others with its hidden characters as `⟨U+202E⟩`. */
export const visible = (text: string): string =>
  text.replace(
    HIDDEN,
    (one) => `⟨U+${(one.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`,
  );

function cutMiddle(text: string, { head, tail }: { head: number; tail: number }): string {
  return text.length <= head + tail + 1 ? text : `${text.slice(0, head)}…${text.slice(-tail)}`;
}
