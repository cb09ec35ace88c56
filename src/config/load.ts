/**
 * From a YAML file, the environment and the program's own settings to a Config: read, replace, complete, check, freeze.
 */
import { readFileSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { Decode, Default } from 'typebox/value';
import { messageOf } from '../core/fault.ts';
import { convertVariables } from './convert.ts';
import { type ReadDocument, readDocument } from './document.ts';
import type { Environment } from './environment.ts';
import type { Finding } from './finding.ts';
import { childPointer } from './pointer.ts';
import { checkPoints } from './points.ts';
import { configError, unreadableFile } from './problems.ts';
import { checkRules } from './rules.ts';
import { type Config, ConfigSchema, type ConfigText } from './schema.ts';
import { nearestPlace, replaceValue, type Settings } from './settings.ts';
import { checkShape } from './shape.ts';
import { applyVariables } from './variables.ts';

/** A part of the configuration, with the file's keys; lists and whole values replace what they meet. */
export type ConfigOverrides = DeepPartial<ConfigText>;
type DeepPartial<Value> = Value extends readonly unknown[]
  ? Value
  : Value extends object
    ? { [Key in keyof Value]?: DeepPartial<Value[Key]> }
    : Value;

type ConfigSource = {
  /** Path of the YAML file; without one everything comes from the environment and the overrides. */
  file?: string;
  env: Environment;
  /** What the calling program decides itself; stronger than the environment, which is stronger than the file. */
  overrides?: ConfigOverrides;
};

/** Far above any real configuration, and little enough to read into memory whatever file is named by mistake. */
const FILE_BYTES_MAX = 1_048_576;

/**
 * The effective configuration, complete, valid and deeply frozen. Relative paths start at the folder of the file,
 * without a file at the working folder.
 * @throws ConfigError with every problem at once.
 */
export function loadConfig(source: ConfigSource): Config {
  const { file, env, overrides = {} } = source;
  const { settings, findings, names, isWhole } =
    file === undefined ? noDocument() : readDocument({ file, text: readText(file) }, env);
  if (!isWhole) throw configError(settings, findings);

  const variableFindings = applyVariables(settings, env, names);
  for (const [pointer, value] of leavesOf(overrides, '')) {
    replaceValue(settings, pointer, { value, place: { program: true } });
  }
  // What the file says about a key does not matter where something stronger gives it.
  const fileFindings = findings.filter(({ pointer }) => 'value' in (nearestPlace(settings, pointer) ?? {}));
  const conversionFindings = convertVariables(settings);
  if (settings.values.chain === undefined) settings.values.chain = {};
  const values = Default(ConfigSchema, settings.values);

  const all = [
    fileFindings,
    variableFindings,
    conversionFindings,
    checkShape(values),
    checkRules(values),
    checkPoints(values),
  ];
  const problems = all.reduce(addNews, []);
  if (problems.length > 0) throw configError(settings, problems);
  return finish(values, file === undefined ? '.' : dirname(file));
}

function noDocument(): ReadDocument {
  const settings: Settings = { values: {}, places: new Map(), fromVariables: new Set() };
  return { settings, findings: [], names: new Set(), isWhole: true };
}

function readText(file: string): string {
  try {
    if (statSync(file).size > FILE_BYTES_MAX) throw new Error(`is larger than ${FILE_BYTES_MAX} bytes`);
    return readFileSync(file, 'utf8');
  } catch (error) {
    const isAbsent = error instanceof Error && 'code' in error && error.code === 'ENOENT';
    throw unreadableFile(file, isAbsent ? 'there is no such file' : `cannot be read: ${messageOf(error)}`);
  }
}

function leavesOf(value: unknown, pointer: string): [string, unknown][] {
  if (value === undefined) return [];
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return [[pointer, value]];
  return Object.entries(value).flatMap(([key, child]) => leavesOf(child, childPointer(pointer, key)));
}

/** Each check sees the mistakes of the ones before it; only what is not at or below an earlier one is news. */
function addNews(known: Finding[], findings: Finding[]): Finding[] {
  const isNews = ({ pointer, variable }: Finding) =>
    variable !== undefined || !known.some((earlier) => isAtOrBelow(pointer, earlier.pointer));
  return [...known, ...findings.filter(isNews)];
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
