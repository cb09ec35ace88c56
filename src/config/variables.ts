/**
 * Every key of the configuration as an environment variable: `http.port` is CHAINBELL_HTTP_PORT, `chain.startBlock`
 * is CHAINBELL_CHAIN_START_BLOCK or CHAINBELL_CHAIN_STARTBLOCK. Lists of texts are given with commas; lists of maps
 * and maps with free keys (pairs, tokens) as YAML.
 */
import Type, { type TSchema } from 'typebox';
import type { Environment } from './environment.ts';
import type { Finding } from './finding.ts';
import { childPointer, keysOf } from './pointer.ts';
import { ConfigSchema } from './schema.ts';
import { replaceValue, type Settings } from './settings.ts';
import { closest } from './suggest.ts';

const PREFIX = 'CHAINBELL_';

/**
 * Puts the variables over the values of the file; an empty one counts as absent. DATABASE_URL serves where nothing
 * else gives `database.url`. `names` are variables that the file itself asks for.
 */
export function applyVariables(
  settings: Settings,
  environment: Environment,
  names: ReadonlySet<string>,
): Finding[] {
  const findings: Finding[] = [];
  const variables = listVariables();
  const pointerByName = new Map(variables.map(({ name, pointer }) => [squash(name), pointer]));
  const nameByPointer = new Map<string, string>();
  for (const [name, text] of Object.entries(environment)) {
    if (!name.startsWith(PREFIX) || text === undefined || text === '') continue;
    const pointer = pointerByName.get(squash(name));
    if (pointer === undefined) {
      if (!names.has(name))
        findings.push(
          ...misspelt(
            name,
            variables.map((known) => known.name),
          ),
        );
      continue;
    }
    const other = nameByPointer.get(pointer);
    if (other !== undefined) findings.push({ pointer, message: `is given by ${other} and by ${name}` });
    nameByPointer.set(pointer, name);
    give(settings, { pointer, name, text });
  }
  const databaseUrl = environment.DATABASE_URL;
  if (databaseUrl !== undefined && databaseUrl !== '' && !settings.places.has('/database/url')) {
    give(settings, { pointer: '/database/url', name: 'DATABASE_URL', text: databaseUrl });
  }
  return findings;
}

/** The variable that gives the key at a pointer, undefined where there is none. */
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

function squash(name: string): string {
  return name.slice(PREFIX.length).replaceAll('_', '');
}

/** Only what looks like a slip: Kubernetes makes CHAINBELL_PORT and more for a service named chainbell. */
function misspelt(name: string, candidates: string[]): Finding[] {
  const candidate = closest(name, candidates);
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
