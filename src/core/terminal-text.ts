/**
 * Untrusted texts on a terminal and in commands to copy: the name of a watcher may contain any character.
 */

/** As it is where it is plain; else as JSON, so that it can neither break the line nor steer the terminal. */
export const shownText = (text: string): string =>
  /^[\p{L}\p{N}\p{P}\p{S}]+( [\p{L}\p{N}\p{P}\p{S}]+)*$/u.test(text) && !/["'\\]/.test(text)
    ? text
    : JSON.stringify(text).replace(/[\u007f-\u009f\u2028-\u202e\u2066-\u2069]/g, escapeCharacter);

/** As a shell takes it for one word. */
export const shellWord = (text: string): string =>
  /^[\w/.:@%+,][\w/.:@%+,-]*$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;

const escapeCharacter = (character: string) =>
  `\\u${(character.codePointAt(0) ?? 0).toString(16).padStart(4, '0')}`;
