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

/** Names of keys that hold a secret. */
const NAMES = String.raw`[\w-]*(?:key|token|authorization|cookie)`;
/** `token: token:USDC` of a point rule names a contract. */
const NO_CONTRACT = String.raw`(?!\s+["']?(?:token:\S|pair:\d))`;
const SECRET = new RegExp(String.raw`^["']?(?:secret|formerSecrets|${NAMES})["']?\s*:${NO_CONTRACT}`, 'i');
const OWN_SECRET = /^["']?(?:secret|apiKey|adminToken)["']?\s*:\s*(["'])(?:(?!\1).)*\1\s*[^\s#]/;
/** A key whose value begins on the next line. */
const BARE_SECRET = new RegExp(
  String.raw`\b(?:secret|formerSecrets|${NAMES})["']?\s*:\s*(?:[|>][-+\d]*)?\s*(?:#.*)?$`,
  'i',
);
/** A key between braces that are still open, whose value may go on in the next line. */
const LAST_SECRET = new RegExp(
  String.raw`[{,]\s*["']?(?:secret|${NAMES})["']?\s*:(?=[\s"'])${NO_CONTRACT}[^,}]*$`,
  'i',
);
const NAMED_SECRET = new RegExp(String.raw`(\b${NAMES}["']?\s*:\s*["']?)((?:\$\{[^}]*\}|[^"',}])+)`, 'gi');
const HEADERS = /\bheaders["']?\s*:/i;
const BARE_HEADERS = /^["']?headers["']?\s*:\s*(?:#.*)?$/i;
const TOKENS = /^["']?tokens["']?\s*:\s*\{?\s*(?:#.*)?$/;
const NAME = /^["']?[\w.-]+["']?\s*:(?=\s|$)\s*["']?/;

/** A line without its secrets, which the lines above may have begun. */
function starLine(line: string, above: readonly string[]): string {
  const begin = indentOf(line).length;
  const name = nameOf(line).length;
  // Text after a closed quote is a mistake, and part of the secret.
  if (OWN_SECRET.test(line.slice(begin))) return line.slice(0, begin + name) + star(line.slice(begin + name));
  const block = blockOf(line, above) ?? flowOf(above) ?? (name === 0 ? textOf(line, above) : undefined);
  const isName = block === 'headers' || isToken(line, above);
  const shown = isName ? begin + name : block === undefined ? 0 : begin;
  const rest = line.slice(shown);
  return line.slice(0, shown) + (block === undefined ? starSecrets(rest) : star(rest));
}

/** The block of secrets that a line belongs to. A forgotten indentation below `headers:` counts too. */
function blockOf(below: string, above: readonly string[]): 'headers' | 'secret' | undefined {
  const depth = depthOf(below);
  let least = depth;
  /** The line after the one that the loop looks at. */
  let next = below;
  for (const [index, line] of [...above.entries()].toReversed()) {
    if (least === 0) return undefined;
    if (isEmpty(line)) continue;
    const own = depthOf(line);
    const content = line.slice(indentOf(line).length);
    const isUnindented = own === depth && BARE_HEADERS.test(content) && depthOf(next) <= own;
    next = line;
    if (own >= least && !isUnindented) continue;
    if (HEADERS.test(content)) return least === depth ? 'headers' : 'secret';
    if (SECRET.test(content) && !isToken(line, above.slice(0, index))) return 'secret';
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

/** A line without a name may be the rest of a secret with a line break, however it is indented. */
function textOf(line: string, above: readonly string[]): 'secret' | undefined {
  if (BARE_SECRET.test(above.findLast((one) => !isEmpty(one)) ?? '')) return 'secret';
  if (!isText(line)) return undefined;
  const index = above.findLastIndex((one) => !isEmpty(one) && !isText(one));
  const [begin = '', before] = [above[index], above.slice(0, Math.max(0, index))];
  if (isToken(begin, before)) return undefined;
  const isSecret = SECRET.test(begin.slice(indentOf(begin).length)) || LAST_SECRET.test(begin);
  return isSecret || blockOf(begin, before) !== undefined ? 'secret' : undefined;
}

/** A token may be named KEY or MYTOKEN. Its value is a mapping, unlike that of a secret. */
function isToken(line: string, above: readonly string[]): boolean {
  const name = nameOf(line);
  if (name === '' || !/^(?:[{#]|$)/.test(line.slice(indentOf(line).length + name.length))) return false;
  const parent = above.findLast((one) => !isEmpty(one) && depthOf(one) < depthOf(line)) ?? '';
  return TOKENS.test(parent.trimStart());
}

const isEmpty = (line: string) => /^\s*(?:#|$)/.test(line);
/** The dash of a list entry counts as indentation. */
const indentOf = (line: string) => /^(?:[ \t]|-(?=[ \t]))*/.exec(line)?.[0] ?? '';
const nameOf = (line: string) => NAME.exec(line.slice(indentOf(line).length))?.[0] ?? '';
/** Neither a key nor the start of an entry or of braces. */
const isText = (line: string) => nameOf(line) === '' && !/^\s*(?:-\s|[{}[\]])/.test(line);
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
    .replace(NAMED_SECRET, (all: string, key: string, value: string, start: number) =>
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
