/**
 * What is wrong with a configuration, in the form that people read: position, reason, the line with a caret, and what
 * to write instead.
 */
import { excerpt } from './excerpt.ts';
import type { Finding } from './finding.ts';
import { displayPath, findAt } from './pointer.ts';
import { nearestPlace, type Place, type Range, type Settings, type SourceFile } from './settings.ts';
import { rangeOfSpan } from './value-range.ts';
import { findVariable } from './variables.ts';

/** Something wrong, for people and programs; a value from the environment has a `variable` and no position. */
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

/** Every problem of a configuration; the message is the whole report, one paragraph for each. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly problems: readonly ConfigProblem[];

  constructor(problems: readonly ConfigProblem[], report: string) {
    super(report);
    this.problems = problems;
  }
}

/** The error for what was found in these settings, in the order of the file, the environment last. */
export function configError(settings: Settings, findings: readonly Finding[]): ConfigError {
  const located = findings.map((finding) => ({ finding, ...locate(settings, finding) }));
  located.sort((left, right) => left.offset - right.offset);
  return new ConfigError(
    located.map(({ problem }) => problem),
    located.map(({ problem, lines }) => formatProblem(problem, lines)).join('\n'),
  );
}

/** The error for a file that could not be read at all. */
export function unreadableFile(file: string, reason: string): ConfigError {
  const problem = { file, path: '', message: reason };
  return new ConfigError([problem], formatProblem(problem, []));
}

type Located = { problem: ConfigProblem; lines: string[]; offset: number };

function locate(settings: Settings, finding: Finding): Located {
  const { pointer, message, suggestion } = finding;
  const problem: ConfigProblem = { path: displayPath(pointer), message };
  if (suggestion !== undefined) problem.suggestion = suggestion;
  const place = placeOf(settings, finding);
  if (place !== undefined && 'variable' in place) problem.variable = place.variable;
  const { source } = settings;
  if (place === undefined || !('value' in place) || source === undefined) {
    problem.message += characterOf(finding);
    return { problem, lines: [], offset: Number.MAX_SAFE_INTEGER };
  }
  // A missing key is shown at its parent's key: the parent's value is the whole section.
  const isAtKey = finding.at === 'key' || !settings.places.has(pointer);
  const part = isAtKey ? undefined : partOf(settings, source, finding, place.value);
  // Where the file does not have the text letter by letter.
  if (part === undefined) problem.message += characterOf(finding);
  const range = isAtKey ? (place.key ?? place.value) : (part ?? place.value);
  const { line, col } = source.lines.linePos(Math.min(range[0], source.text.length));
  return {
    problem: { ...problem, file: source.file, line, col },
    lines: excerpt(source.text, { line, col, length: range[1] - range[0] }),
    offset: range[0],
  };
}

function characterOf({ span }: Finding): string {
  return span === undefined ? '' : ` (at character ${span.start + 1})`;
}

/** The finding's part of a text. */
function partOf(
  settings: Settings,
  source: SourceFile,
  { pointer, span }: Finding,
  range: Range,
): Range | undefined {
  const value = findAt(settings.values, pointer);
  return span === undefined || typeof value !== 'string'
    ? undefined
    : rangeOfSpan(source, { value, range, span });
}

function placeOf(settings: Settings, { pointer, range, variable }: Finding): Place | undefined {
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
