/**
 * Shows the line of a problem with carets under the token. Stars replace secrets, because reports end up in logs.
 */

const LINE_CHARACTERS_MAX = 110;
const TAB_SPACES = 100;

/**
 * The line and the caret line, and what stars mean if there are any; none if the line is blank. `length` is in characters and may
 * exceed the line.
 */
export function excerpt(text: string, token: { line: number; col: number; length: number }): string[] {
  const lines = text.split('\n').map((one) => one.replace(/\r$/, ''));
  const line = lines[token.line - 1];
  if (line === undefined || line.trim() === '' || token.length === 0) return [];
  const start = line.length > LINE_CHARACTERS_MAX ? Math.max(0, token.col - 1 - LINE_CHARACTERS_MAX / 2) : 0;
  const cut = (whole: string) => whole.slice(start, start + LINE_CHARACTERS_MAX);
  const shown = cut(starLine(line, lines.slice(0, token.line - 1)));
  const before = shown.slice(0, token.col - 1 - start);
  const caretCount = Math.max(1, Math.min(token.length, shown.length - before.length));
  // Keep tabs, so that the caret stands under its token at any tab width.
  return [
    `${String(token.line).padStart(5)} | ${shown}`,
    `      | ${before.replace(/[^\t]/g, ' ')}${'^'.repeat(caretCount)}`,
    ...(shown === cut(line) ? [] : ['      (* hides what may be secret)']),
  ];
}

const SECRET = /^["']?(?:secret|formerSecrets|[\w-]*(?:key|token|authorization|cookie))["']?\s*:/i;
const OWN_SECRET = /^["']?(?:secret|apiKey|adminToken)["']?\s*:\s*(["'])(?:(?!\1).)*\1\s*[^\s#]/;
/** A key whose value begins on the next line. */
const BARE_SECRET =
  /\b(?:secret|formerSecrets|[\w-]*(?:key|token|authorization|cookie))["']?\s*:\s*(?:[|>][-+\d]*)?\s*(?:#.*)?$/i;
const HEADERS = /\bheaders["']?\s*:/i;
const BARE_HEADERS = /^["']?headers["']?\s*:\s*(?:#.*)?$/i;
const NAME = /^["']?[\w.-]+["']?\s*:(?=\s|$)\s*["']?/;

/** A line without its secrets, which the lines above may have begun. */
function starLine(line: string, above: readonly string[]): string {
  const begin = indentOf(line).length;
  const name = NAME.exec(line.slice(begin))?.[0].length ?? 0;
  // Text after a closed quote is a mistake, and part of the secret.
  if (OWN_SECRET.test(line.slice(begin))) return line.slice(0, begin + name) + star(line.slice(begin + name));
  const block = blockOf(depthOf(line), above) ?? flowOf(above) ?? (name === 0 ? bareOf(above) : undefined);
  if (block === undefined) return starSecrets(line);
  const shown = begin + (block === 'headers' ? name : 0);
  return line.slice(0, shown) + star(line.slice(shown));
}

/** The block of secrets that a line of this depth belongs to. A forgotten indentation below `headers:` counts too. */
function blockOf(depth: number, above: readonly string[]): 'headers' | 'secret' | undefined {
  let least = depth;
  for (const line of above.toReversed()) {
    if (least === 0) return undefined;
    if (isEmpty(line)) continue;
    const own = depthOf(line);
    const content = line.slice(indentOf(line).length);
    if (own >= least && !(own === depth && BARE_HEADERS.test(content))) continue;
    if (HEADERS.test(content)) return least === depth ? 'headers' : 'secret';
    if (SECRET.test(content)) return 'secret';
    least = own;
  }
  return undefined;
}

/** The braces or brackets with secrets that the lines above have opened and not closed. */
function flowOf(above: readonly string[]): 'headers' | 'secret' | undefined {
  const [, key] = /\b(headers|formerSecrets)["']?\s*:\s*[{[][^}\]]*$/i.exec(above.join('\n')) ?? [];
  if (key === undefined) return undefined;
  return key === 'headers' ? 'headers' : 'secret';
}

function bareOf(above: readonly string[]): 'secret' | undefined {
  return BARE_SECRET.test(above.findLast((line) => !isEmpty(line)) ?? '') ? 'secret' : undefined;
}

const isEmpty = (line: string) => /^\s*(?:#|$)/.test(line);
/** The dash of a list entry counts as indentation. */
const indentOf = (line: string) => /^(?:[ \t]|-(?=[ \t]))*/.exec(line)?.[0] ?? '';
/** A tab, which YAML refuses, is deeper than any spaces, because it may stand for all of them. */
const depthOf = (line: string) => indentOf(line).replaceAll('\t', ' '.repeat(TAB_SPACES)).length;

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
