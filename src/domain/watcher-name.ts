/**
 * Checks names of watchers. Operators choose the names, which appear in lists, logs and commands to copy.
 */
import { idInKey } from './api-key.ts';

const NAME_CHARACTERS_MAX = 100;
/** Control and format characters (some change the text direction, some are invisible), lone surrogates, separators of lines. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u;

/** Why a new watcher can't have the name. Undefined if it can. Existing watchers keep such a name. */
export function nameProblem(name: string): string | undefined {
  if (name.trim() === '') return 'a watcher needs a name';
  if (UNPRINTABLE.test(name))
    return 'the name of a watcher must not contain line breaks or control characters';
  if (name.trim() !== name) return 'the name of a watcher must not begin or end with a space';
  if (idInKey(name) !== undefined) return 'the name of a watcher must not be an API key';
  if (Array.from(name).length > NAME_CHARACTERS_MAX)
    return `the name of a watcher may have ${NAME_CHARACTERS_MAX} characters`;
  return undefined;
}
