/**
 * Turns user and password of a URL into HTTP Basic authentication (RFC 7617). HTTP clients would drop them, or send them with
 * their percent escapes.
 */

/** The URL without credentials, and the header that carries them if there were any. */
export function splitCredentials(url: string): { url: string; headers: { authorization?: string } } {
  const basic = basicCredentials(url);
  if (basic === undefined) return { url, headers: {} };
  const bare = new URL(url);
  bare.username = '';
  bare.password = '';
  return { url: bare.href, headers: { authorization: `Basic ${basic}` } };
}

/** `user:password` in base64. Undefined if the URL has neither. */
export function basicCredentials(url: string): string | undefined {
  const { username, password } = new URL(url);
  if (username === '' && password === '') return undefined;
  return Buffer.from(`${decodePercent(username)}:${decodePercent(password)}`).toString('base64');
}

/** Decodes percent escapes. Returns the text unchanged if one of them is invalid. */
export function decodePercent(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
