/**
 * Links to the console that open it signed in. The secret is in the fragment, which browsers don't send to the server.
 */

/** The address of the console, with the key or token. */
export function consoleLink(apiUrl: string, secret: { key: string } | { admin: string }): string {
  const entries = Object.entries(secret).map(([name, value]) => `${name}=${encodeURIComponent(value)}`);
  return `${apiUrl}/console#${entries.join('&')}`;
}
