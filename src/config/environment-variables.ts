/**
 * Each key of the configuration has an environment variable: CHAINBELL_HTTP_PORT sets `http.port`, and
 * CHAINBELL_CHAIN_START_BLOCK or CHAINBELL_CHAIN_STARTBLOCK sets `chain.startBlock`. Commas separate the entries of a
 * list of texts. Lists of maps and maps with free keys (pairs, tokens) are written as YAML.
 */
import Type, { type TSchema } from 'typebox';
import { closest } from './closest-word.ts';
import type { EnvironmentVariables } from './environment.ts';
import { childPointer, findAt, keysOf } from './pointer.ts';
import type { PointerProblem } from './problem.ts';
import { ConfigSchema } from './schema.ts';
import { replaceValue, type Settings } from './value-origins.ts';

const PREFIX = 'CHAINBELL_';

/**
 * Overrides values of the file with environment variables. An empty variable, or one of white space, counts as absent. DATABASE_URL
 * applies if nothing else sets `database.url`. `names` are the variables that the file itself uses.
 */
export function applyVariables(
  settings: Settings,
  environment: EnvironmentVariables,
  names: ReadonlySet<string>,
): PointerProblem[] {
  const problems: PointerProblem[] = [];
  const variables = listVariables();
  const pointerByName = new Map(variables.map(({ name, pointer }) => [squash(name), pointer]));
  const nameByPointer = new Map<string, string>();
  for (const [name, text] of Object.entries(environment)) {
    if (!name.startsWith(PREFIX) || text === undefined || text.trim() === '') continue;
    if (isServiceLink(name, environment)) continue;
    const pointer = pointerByName.get(squash(name));
    if (pointer === undefined) {
      if (!names.has(name)) problems.push(...misspelt(name, variables));
      continue;
    }
    const other = nameByPointer.get(pointer);
    if (other !== undefined) problems.push({ pointer, message: `is set by both ${other} and ${name}` });
    nameByPointer.set(pointer, name);
    give(settings, { pointer, name, text });
  }
  const databaseUrl = environment.DATABASE_URL;
  if (
    databaseUrl !== undefined &&
    databaseUrl.trim() !== '' &&
    findAt(settings.values, '/database/url') === undefined
  ) {
    give(settings, { pointer: '/database/url', name: 'DATABASE_URL', text: databaseUrl });
  }
  return problems;
}

/** The first variable that sets a key, or seems meant to; undefined if the environment holds no configuration. */
export function firstVariable(environment: EnvironmentVariables): string | undefined {
  const settings: Settings = { values: {}, places: new Map(), fromVariables: new Set() };
  const problems = applyVariables(settings, environment, new Set());
  const places = [...settings.places.values(), ...problems];
  return places
    .map((one) => ('variable' in one ? one.variable : undefined))
    .find((name) => name !== undefined);
}

/** The variable that sets the key at a pointer; undefined if there is none. */
export function findVariable(pointer: string): string | undefined {
  return listVariables().find((variable) => variable.pointer === pointer)?.name;
}

/** Every key that has a variable. */
export function listVariables(): { name: string; pointer: string }[] {
  return listLeaves(ConfigSchema, '').map((pointer) => ({ name: variableName(pointer), pointer }));
}

function listLeaves(schema: TSchema, pointer: string): string[] {
  if (!Type.IsObject(schema)) return [pointer];
  return Object.entries(schema.properties).flatMap(([key, child]) =>
    listLeaves(child, childPointer(pointer, key)),
  );
}

function variableName(pointer: string): string {
  const words = keysOf(pointer).map((key) => key.replace(/[A-Z]/g, (capital) => `_${capital}`));
  return PREFIX + words.join('_').toUpperCase();
}

/** The pointers of the maps that contain the key, outermost first. */
function sectionsOf(pointer: string): string[] {
  const keys = keysOf(pointer).slice(0, -1);
  return keys.map((_, index) => keys.slice(0, index + 1).reduce(childPointer, ''));
}

function squash(name: string): string {
  return name.slice(PREFIX.length).replaceAll('_', '');
}

/** Whether Kubernetes sets the variable for a service, such as CHAINBELL_METRICS_PORT for one named chainbell-metrics. */
function isServiceLink(name: string, environment: EnvironmentVariables): boolean {
  return (
    name.endsWith('_PORT') &&
    /^(tcp|udp|sctp):\/\//.test(environment[name] ?? '') &&
    environment[name.replace(/PORT$/, 'SERVICE_HOST')] !== undefined
  );
}

/** Reports only names of sections and likely typos, because Kubernetes sets CHAINBELL_PORT and others for a service named chainbell. */
function misspelt(name: string, known: { name: string; pointer: string }[]): PointerProblem[] {
  const first = known.find(({ pointer }) =>
    sectionsOf(pointer).some((section) => variableName(section) === name),
  );
  if (first !== undefined)
    return [
      {
        ...{ pointer: '', variable: name, message: 'is a section of the configuration, and has no variable' },
        suggestion: `set its keys, for example ${first.name}`,
      },
    ];
  const candidate = closest(
    name,
    known.map((one) => one.name),
  );
  if (candidate === undefined) return [];
  return [
    { pointer: '', variable: name, message: 'unknown variable', suggestion: `did you mean "${candidate}"?` },
  ];
}

function give(settings: Settings, variable: { pointer: string; name: string; text: string }): void {
  const { pointer, name, text } = variable;
  replaceValue(settings, pointer, { value: text, place: { variable: name } });
  settings.fromVariables.add(pointer);
}
