/**
 * Shows the line of a problem with carets under the token. Stars replace secrets, because reports end up in logs.
 */

const LINE_CHARACTERS_MAX = 110;

/**
 * The line and the caret line, and what stars mean if there are any; none if the line is blank. `length` is in characters and may
 * exceed the line.
 */
export function excerpt(text: string, token: { line: number; col: number; length: number }): string[] {
  const line = text.split('\n')[token.line - 1]?.replace(/\r$/, '');
  if (line === undefined || line.trim() === '' || token.length === 0) return [];
  const start = line.length > LINE_CHARACTERS_MAX ? Math.max(0, token.col - 1 - LINE_CHARACTERS_MAX / 2) : 0;
  const cut = (whole: string) => whole.slice(start, start + LINE_CHARACTERS_MAX);
  const shown = cut(starSecrets(line));
  const before = shown.slice(0, token.col - 1 - start);
  const caretCount = Math.max(1, Math.min(token.length, shown.length - before.length));
  // Keep tabs, so that the caret stands under its token at any tab width.
  return [
    `${String(token.line).padStart(5)} | ${shown}`,
    `      | ${before.replace(/[^\t]/g, ' ')}${'^'.repeat(caretCount)}`,
    ...(shown === cut(line) ? [] : ['      (* hides what may be secret)']),
  ];
}

/**
 * Replaces possible secrets with stars and keeps the length of the line: credentials and paths of URLs, the values of
 * `secret`, of API keys, tokens and headers, and the entries of `formerSecrets`, also on separate lines. Works on text,
 * because a file with a syntax error has secrets too. `${NAME}` stays readable.
 */
export function starSecrets(line: string): string {
  return line
    .replace(
      /([a-z][a-z0-9+.-]*:\/\/)([^\s"']*@)?((?:\$\{[^}]*\}|[^\s"'/?#\]}])*)([/?#](?:\$\{[^}]*\}|[^\s"',\]}])*)?/gi,
      (_all, scheme: string, credentials = '', host: string, path = '') =>
        scheme + star(credentials) + host + star(path),
    )
    .replace(
      /(\bsecret["']?\s*:\s*["']?)((?:\$\{[^}]*\}|[^\s"',}])+)/gi,
      (_all, key: string, value: string) => key + star(value),
    )
    .replace(
      /(\b[\w-]*(?:key|token|authorization|cookie)["']?\s*:\s*["']?)((?:\$\{[^}]*\}|[^"',}])+)/gi,
      (all: string, key: string, value: string, start: number) =>
        namesContract(line.slice(0, start), key, value) ? all : key + star(value),
    )
    .replace(/(\bheaders["']?\s*:\s*\{)(.+)/i, (_all, key: string, value: string) => key + star(value))
    .replace(/(\bformerSecrets["']?\s*:\s*)(.+)/i, (_all, key: string, value: string) => key + star(value))
    .replace(
      /(^\s*-\s*["']?)([A-Za-z0-9+/]{24,}={0,2})/,
      (_all, dash: string, value: string) => dash + star(value),
    );
}

/** Recognizes `token: token:USDC` and `[token:USDC]` of point rules. Elsewhere `token` may be the name of a header. */
function namesContract(before: string, key: string, value: string): boolean {
  if (key === 'token:') return /[[,]\s*$|^\s*-\s+$/.test(before);
  return /^token:\s+["']?$/.test(key) && /^(token:\S+|pair:\d+|0x[\da-f]{40})\s*$/i.test(value);
}

function star(text: string): string {
  return text.replace(/\$\{\w+(:-)?\}|[^/@?#]/g, (part) => (part.length > 1 ? part : '*'));
}
