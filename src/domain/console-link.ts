/**
 * Links to the console that open it signed in. The secret is in the fragment, which browsers don't send to the server.
 */

/** The address of the console, with the key or token where one is given. */
export function consoleLink(apiUrl: string, secret: { key: string } | { admin: string } | undefined): string {
  const [entry] = Object.entries(secret ?? {});
  return `${apiUrl}/console${entry === undefined ? '' : `#${entry[0]}=${encodeURIComponent(entry[1])}`}`;
}
