/**
 * Builds a Config from a YAML file, the environment and overrides: reads, replaces variables, fills in defaults, checks
 * and freezes.
 */
import { isUtf8 } from 'node:buffer';
import { readFileSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { Decode, Default } from 'typebox/value';
import { NO_FILE, whyUnreadable } from '../core/file-fault.ts';
import { checkBetweenKeys } from './check-between-keys.ts';
import { checkSchema } from './check-schema.ts';
import { convertVariables } from './convert-variables.ts';
import type { EnvironmentVariables } from './environment.ts';
import { applyVariables } from './environment-variables.ts';
import { checkPoints } from './point-rules.ts';
import { childPointer } from './pointer.ts';
import type { PointerProblem } from './problem.ts';
import { configError, unreadableFile } from './problem-report.ts';
import { type ReadDocument, readDocument } from './read-yaml.ts';
import { type Config, ConfigSchema, type ConfigText } from './schema.ts';
import { nearestPlace, replaceValue, type Settings } from './value-origins.ts';

/** A part of the configuration, with the file's keys. Maps are merged; any other value replaces the one before. */
export type ConfigOverrides = DeepPartial<ConfigText>;
type DeepPartial<Value> = Value extends readonly unknown[]
  ? Value
  : Value extends object
    ? { [Key in keyof Value]?: DeepPartial<Value[Key]> }
    : Value;

type ConfigSource = {
  /** Path of the YAML file; without one everything comes from the environment and the overrides. */
  file?: string;
  env: EnvironmentVariables;
  /** Values from the calling program. They override the environment, which overrides the file. */
  overrides?: ConfigOverrides;
};

/** Far above any real configuration, and small enough to read into memory if --config names the wrong file. */
const FILE_BYTES_MAX = 1_048_576;

/**
 * Returns the effective configuration: complete, valid and deeply frozen. Relative paths start at the folder of the
 * file, or at the working folder if there is no file.
 * @throws ConfigError with every problem at once.
 */
export function loadConfig(source: ConfigSource): Config {
  const { file, env, overrides = {} } = source;
  const { settings, names, isWhole, ...read } =
    file === undefined ? noDocument() : readDocument({ file, text: readText(file) }, env);
  if (!isWhole) throw configError(settings, read.problems);

  const variableProblems = applyVariables(settings, env, names);
  for (const [pointer, value] of leavesOf(overrides, '')) {
    replaceValue(settings, pointer, { value, place: { program: true } });
  }
  // A problem in the file doesn't matter if the environment or the caller replaces the value.
  const isOfFile = ({ pointer }: PointerProblem) => 'value' in (nearestPlace(settings, pointer) ?? {});
  const converted = convertVariables(settings);
  if (settings.values.chain === undefined) settings.values.chain = {};
  const values = Default(ConfigSchema, settings.values);

  const all = [
    read.problems.filter(isOfFile),
    variableProblems,
    converted.problems,
    checkSchema(values),
    checkBetweenKeys(values),
    checkPoints(values),
    read.rounded.filter(isOfFile),
    converted.rounded,
  ];
  const problems = all.reduce(addNewProblems, []);
  if (problems.length > 0) throw configError(settings, problems);
  return finish(values, file === undefined ? '.' : dirname(file));
}

function noDocument(): ReadDocument {
  const settings: Settings = { values: {}, places: new Map(), fromVariables: new Set() };
  return { settings, problems: [], rounded: [], names: new Set(), isWhole: true };
}

function readText(file: string): string {
  let bytes: Buffer;
  try {
    if (statSync(file).size > FILE_BYTES_MAX) throw new Error(`is larger than ${FILE_BYTES_MAX} bytes`);
    bytes = readFileSync(file);
  } catch (error) {
    const reason = whyUnreadable(error);
    throw unreadableFile(file, reason === NO_FILE ? reason : `cannot be read: ${reason}`);
  }
  // UTF-16, as PowerShell writes it, may be valid UTF-8 too, with a NUL beside each letter.
  if (!isUtf8(bytes) || bytes.includes(0))
    throw unreadableFile(file, 'is not UTF-8 text', 'save it as UTF-8');
  return bytes.toString();
}

function leavesOf(value: unknown, pointer: string): [string, unknown][] {
  if (value === undefined) return [];
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [[pointer, value]];
  return Object.entries(value).flatMap(([key, child]) => leavesOf(child, childPointer(pointer, key)));
}

/** A later check also stumbles over earlier problems. Adds only problems that are not at or below a known one. */
function addNewProblems(known: PointerProblem[], problems: PointerProblem[]): PointerProblem[] {
  const isNew = ({ pointer, variable }: PointerProblem) =>
    variable !== undefined || !known.some((earlier) => isAtOrBelow(pointer, earlier.pointer));
  return [...known, ...problems.filter(isNew)];
}

function isAtOrBelow(pointer: string, upper: string): boolean {
  return upper !== '' && (pointer === upper || pointer.startsWith(`${upper}/`));
}

function finish(values: unknown, folder: string): Config {
  const { retention, ...rest } = Decode(ConfigSchema, values);
  const { caFile } = rest.webhooks;
  return deepFreeze({
    ...rest,
    dataDir: resolve(folder, rest.dataDir),
    webhooks: { ...rest.webhooks, caFile: caFile === null ? null : resolve(folder, caFile) },
    retention: {
      attemptsMs: retention.attempts,
      notificationsMs: retention.notifications,
      observationsMs: retention.observations,
      swapsMs: retention.swaps,
      pairHistoryMs: retention.pairHistory,
    },
  });
}

function deepFreeze<Value>(value: Value): Value {
  if (typeof value === 'object' && value !== null) {
    for (const child of Object.values(value)) deepFreeze(child);
    Object.freeze(value);
  }
  return value;
}
