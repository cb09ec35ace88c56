/**
 * Makes any text one that PostgreSQL can store: other people's programs wrote parts of most messages.
 */

/** In a character class: what PostgreSQL doesn't store, or people can't see: control characters, lone surrogates, and U+FFFD. */
export const UNFIT_CHARACTERS = '\\p{Cc}\\p{Cs}\\uFFFD';

/** The first characters, with U+FFFD for what `text` and `jsonb` refuse: NUL, and half of a surrogate pair. */
export function storedText(text: string, charactersMax: number): string {
  return text.slice(0, charactersMax).toWellFormed().replaceAll('\0', '\ufffd');
}
