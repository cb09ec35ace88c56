/**
 * Names of watchers. Operators choose them, and they appear in lists, logs and commands to copy.
 */

const NAME_CHARACTERS_MAX = 100;
/** Controls, halves of characters, other line ends, and marks that turn the direction of what follows. */
const UNPRINTABLE = /[\p{Cc}\p{Cs}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]/u;

/** Why a new watcher may not have the name; undefined where it may. Watchers that have such a name keep it. */
export function nameProblem(name: string): string | undefined {
  if (name.trim() === '') return 'a watcher needs a name';
  if (UNPRINTABLE.test(name))
    return 'the name of a watcher must not contain line breaks or control characters';
  if (Array.from(name).length > NAME_CHARACTERS_MAX)
    return `the name of a watcher may have ${NAME_CHARACTERS_MAX} characters`;
  return undefined;
}
