/**
 * Formats the problems of a configuration for people: position, reason, the line with a caret, and a suggestion.
 */

import { resolve } from 'node:path';
import { findVariable } from './environment-variables.ts';
import { excerpt } from './excerpt.ts';
import { displayPath, findAt } from './pointer.ts';
import type { PointerProblem } from './problem.ts';
import { nearestPlace, type Place, type Range, type Settings, type SourceFile } from './value-origins.ts';
import { rangeOfSpan } from './value-range.ts';

/** A problem for people and programs. One in an environment variable has `variable` and no position. */
type ConfigProblem = {
  file?: string;
  /** From 1. */
  line?: number;
  /** From 1. */
  col?: number;
  variable?: string;
  /** `pairs[0].address`; '' is the whole file. */
  path: string;
  message: string;
  suggestion?: string;
};

/** Has every problem of a configuration. The message is the whole report, with a paragraph for each problem. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly problems: readonly ConfigProblem[];

  constructor(problems: readonly ConfigProblem[], report: string) {
    super(report);
    this.problems = problems;
  }
}

/** Sorts problems by their position in the file, those of the environment last. */
export function configError(settings: Settings, problems: readonly PointerProblem[]): ConfigError {
  const located = problems.map((found) => ({ found, ...locate(settings, found) }));
  located.sort((left, right) => left.offset - right.offset);
  return new ConfigError(
    located.map(({ problem }) => problem),
    located.map(({ problem, lines }) => formatProblem(problem, lines)).join('\n'),
  );
}

/** The error for a file that could not be read at all. */
export function unreadableFile(
  file: string,
  reason: string,
  suggestion = 'name another file with --config (chainbell.example.yaml explains every key)',
): ConfigError {
  // A relative path doesn't say where the file was looked for.
  const problem = { file: resolve(file), path: '', message: reason, suggestion };
  return new ConfigError([problem], formatProblem(problem, []));
}

type Located = { problem: ConfigProblem; lines: string[]; offset: number };

function locate(settings: Settings, found: PointerProblem): Located {
  const { pointer, message, suggestion } = found;
  const problem: ConfigProblem = { path: displayPath(pointer), message };
  if (suggestion !== undefined) problem.suggestion = suggestion;
  const place = placeOf(settings, found);
  if (place !== undefined && 'variable' in place) problem.variable = place.variable;
  const { source } = settings;
  if (place === undefined || !('value' in place) || source === undefined) {
    problem.message += characterOf(found);
    return { problem, lines: [], offset: Number.MAX_SAFE_INTEGER };
  }
  // A missing key is shown at its parent's key: the parent's value is the whole section.
  const isAtKey = found.at === 'key' || !settings.places.has(pointer);
  const part = isAtKey ? undefined : partOf(settings, source, found, place.value);
  // The file doesn't contain the text letter by letter, so the message says the character.
  if (part === undefined) problem.message += characterOf(found);
  const range = isAtKey ? (place.key ?? place.value) : (part ?? place.value);
  const { line, col } = source.lines.linePos(Math.min(range[0], source.text.length));
  return {
    problem: { ...problem, file: source.file, line, col },
    lines: excerpt(source.text, { line, col, length: range[1] - range[0] }),
    offset: range[0],
  };
}

function characterOf({ span }: PointerProblem): string {
  return span === undefined ? '' : ` (at character ${span.start + 1})`;
}

/** The characters of the file for the problem's part of a text. */
function partOf(
  settings: Settings,
  source: SourceFile,
  { pointer, span }: PointerProblem,
  range: Range,
): Range | undefined {
  const value = findAt(settings.values, pointer);
  return span === undefined || typeof value !== 'string'
    ? undefined
    : rangeOfSpan(source, { value, range, span });
}

function placeOf(settings: Settings, { pointer, range, variable }: PointerProblem): Place | undefined {
  if (variable !== undefined) return { variable };
  if (range !== undefined) return { value: range };
  const place = nearestPlace(settings, pointer);
  if (place !== undefined || settings.source !== undefined) return place;
  // Without a file, a missing key is a missing variable.
  const missing = findVariable(pointer);
  return missing === undefined ? undefined : { variable: missing };
}

function formatProblem(problem: ConfigProblem, lines: readonly string[]): string {
  const { file, line, col, variable, path, message, suggestion } = problem;
  const position = file === undefined ? variable : line === undefined ? file : `${file}:${line}:${col}`;
  const reason = path === '' ? message : `${path}: ${message}`;
  return [
    position === undefined ? reason : `${position}  ${reason}`,
    ...lines,
    ...(suggestion === undefined ? [] : [`      ${suggestion}`]),
  ].join('\n');
}
