/**
 * Makes untrusted texts safe for a terminal and for commands to copy, because a watcher's name may contain any character.
 */

/** Returns plain text unchanged, and other text as JSON, so that it can't break the line or send terminal escapes. */
export const shownText = (text: string): string =>
  /^[\p{L}\p{N}\p{P}\p{S}]+( [\p{L}\p{N}\p{P}\p{S}]+)*$/u.test(text) && !/["'\\]/.test(text)
    ? text
    : JSON.stringify(text).replace(/[\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g, escapeCharacter);

/** The text with its control characters escaped, and those that turn the reading direction: nodes and receivers wrote parts of it. */
export const printable = (text: string): string =>
  text.replace(/[\p{Cc}\u2028-\u202e\u2066-\u2069]/gu, escapeCharacter);

/** The lines, made `printable`, each with its end. */
export const printableLines = (lines: readonly string[]): string =>
  lines.map((line) => `${printable(line)}\n`).join('');

/** The text, quoted if necessary, so that a shell reads it as one word. */
export const shellWord = (text: string): string =>
  /^[\w/.:@%+,][\w/.:@%+,-]*$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

const escapeCharacter = (character: string) =>
  `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`;
