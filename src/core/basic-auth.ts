/**
 * User and password of a URL, as HTTP sends them (RFC 7617). Clients drop them silently, or send them with their escapes.
 */

/** The URL without them, and the header that carries them where it has any. */
export function splitCredentials(url: string): { url: string; headers: { authorization?: string } } {
  const basic = basicCredentials(url);
  if (basic === undefined) return { url, headers: {} };
  const bare = new URL(url);
  bare.username = '';
  bare.password = '';
  return { url: bare.href, headers: { authorization: `Basic ${basic}` } };
}

/** `user:password` in base64; undefined where the URL has neither. */
export function basicCredentials(url: string): string | undefined {
  const { username, password } = new URL(url);
  if (username === '' && password === '') return undefined;
  return Buffer.from(`${decodePercent(username)}:${decodePercent(password)}`).toString('base64');
}

/** The text as it is where a percent sign begins no escape. */
export function decodePercent(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
