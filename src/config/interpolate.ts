/**
 * Replaces `${NAME}` and `${NAME:-default}` in values of the file. As in a shell, the default also replaces an empty
 * variable.
 */
import type { Span } from '../core/text-error.ts';
import type { EnvironmentVariables } from './environment.ts';

const VARIABLE = /\$\{(?:([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}|)/g;

type Interpolated = {
  text: string;
  /** Names of the variables in the text. */
  names: string[];
  /** If there are any, the text must not be used. `span` is the variable in the text as it was before. */
  problems: { message: string; suggestion: string; span: Span }[];
};

/** The text with its variables replaced; undefined if it has none. */
export function interpolate(text: string, environment: EnvironmentVariables): Interpolated | undefined {
  if (!text.includes('${')) return undefined;
  const names: string[] = [];
  const problems: Interpolated['problems'] = [];
  type Groups = [name: string | undefined, fallback: string | undefined, start: number];
  const replaced = text.replace(VARIABLE, (all: string, ...[name, fallback, start]: Groups) => {
    const span = { start, end: start + all.length };
    if (name === undefined) {
      problems.push({
        message: 'has a ${ that does not begin a variable',
        suggestion: `variables are written \${NAME} or \${NAME:-default}`,
        span,
      });
      return '';
    }
    names.push(name);
    const value = environment[name];
    if (fallback !== undefined) return value === undefined || value === '' ? fallback.slice(2) : value;
    if (value === undefined) {
      problems.push({
        message: `the variable ${name} is not set`,
        suggestion: `set it, or give a default: \${${name}:-default}`,
        span,
      });
    }
    return value ?? '';
  });
  return { text: replaced, names, problems };
}
