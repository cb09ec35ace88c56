/**
 * Reads YAML text into plain values and records where each one stands. Mistakes in the YAML are returned as problems.
 */
import {
  type Alias,
  type Document,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type Pair,
  type Scalar,
  type YAMLMap,
} from 'yaml';
import { decimal } from '../core/decimal.ts';
import type { EnvironmentVariables } from './environment.ts';
import { interpolate } from './interpolate.ts';
import { parseYaml, showVariables } from './parse-yaml.ts';
import { childPointer } from './pointer.ts';
import type { PointerProblem } from './problem.ts';
import type { Place, Range, Settings } from './value-origins.ts';
import { rangeOfSpan } from './value-range.ts';

export type ReadDocument = {
  settings: Settings;
  problems: PointerProblem[];
  /** Numbers that would be rounded. A value that should not be a number has a more useful problem. */
  rounded: PointerProblem[];
  /** Names of the variables that the text uses. */
  names: Set<string>;
  /** False if the YAML itself is broken. The values are incomplete then, so checking them is pointless. */
  isWhole: boolean;
};

/** Reads the text of a configuration file. Replaces variables in scalar values only. Never throws. */
export function readDocument(
  source: { file: string; text: string },
  environment: EnvironmentVariables,
): ReadDocument {
  const lines = new LineCounter();
  const settings: Settings = {
    source: { ...source, lines },
    values: {},
    places: new Map<string, Place>([['', { value: [0, 0] }]]),
    fromVariables: new Set(),
  };
  const parsed = parseYaml(source.text, lines);
  if ('problems' in parsed) {
    return { settings, problems: parsed.problems, rounded: [], names: new Set(), isWhole: false };
  }
  const found = { problems: [], rounded: [], names: new Set<string>() };
  const reader: Reader = { document: parsed.document, environment, settings, ...found };
  const { contents } = parsed.document;
  const isEmpty = contents === null || (isScalar(contents) && contents.value === null);
  if (isMap(contents)) settings.values = readMap(reader, contents, '');
  else if (!isEmpty) {
    const range = rangeOf(contents);
    reader.problems.push({ pointer: '', message: 'must be a map of settings (key: value)', range });
  }
  const { problems, rounded, names } = reader;
  return { settings, problems, rounded, names, isWhole: isEmpty || isMap(contents) };
}

type ReadText = Pick<ReadDocument, 'problems' | 'rounded'> & { value: unknown };

/**
 * Reads the YAML of an environment variable, which is the value of the key at the pointer. Its problems have no place in the text.
 * Never throws.
 */
export function readVariable(text: string, pointer: string): ReadText {
  const parsed = parseYaml(text, new LineCounter());
  if ('problems' in parsed)
    return {
      value: text,
      problems: parsed.problems.slice(0, 1).map((one) => ({ ...bare(one), pointer })),
      rounded: [],
    };
  const settings: Settings = { values: {}, places: new Map(), fromVariables: new Set() };
  const found = { problems: [], rounded: [], names: new Set<string>() };
  const reader: Reader = { document: parsed.document, environment: undefined, settings, ...found };
  const value = readNode(reader, parsed.document.contents, pointer);
  return { value, problems: reader.problems.map(bare), rounded: reader.rounded };
}

/** Without its place in the text. */
const bare = ({ pointer, message, suggestion }: PointerProblem): PointerProblem => ({
  ...{ pointer, message },
  ...(suggestion !== undefined && { suggestion }),
});

type Reader = {
  document: Document.Parsed;
  /** Undefined where variables aren't replaced. */
  environment: EnvironmentVariables | undefined;
  settings: Settings;
  problems: PointerProblem[];
  rounded: PointerProblem[];
  names: Set<string>;
};

function readNode(reader: Reader, node: Node | null, pointer: string): unknown {
  if (isMap(node)) return readMap(reader, node, pointer);
  if (isSeq(node)) {
    return node.items.map((item, index) => {
      const child = childPointer(pointer, index);
      const itemNode = item as Node | null;
      if (itemNode !== null) reader.settings.places.set(child, { value: rangeOf(itemNode) });
      return readNode(reader, itemNode, child);
    });
  }
  if (isAlias(node)) return readAlias(reader, node, pointer);
  return isScalar(node) ? readScalar(reader, node, pointer) : null;
}

function readMap(reader: Reader, map: YAMLMap, pointer: string): Record<string, unknown> {
  const { settings, problems } = reader;
  const entries = new Map<string, unknown>();
  for (const { key: keyNode, value: valueNode } of map.items as Pair<Node, Node | null>[]) {
    const key = isScalar(keyNode) ? keyText(keyNode) : undefined;
    if (key === undefined || key === '__proto__') {
      const child = childPointer(pointer, key ?? '?');
      settings.places.set(child, { value: rangeOf(keyNode) });
      problems.push({ pointer: child, message: 'cannot be a key' });
      continue;
    }
    const child = childPointer(pointer, key);
    const keyRange = rangeOf(keyNode);
    const first = entries.has(key) ? settings.places.get(child) : undefined;
    const isEmpty = valueNode === null || (isScalar(valueNode) && valueNode.value === null);
    settings.places.set(child, { key: keyRange, value: isEmpty ? keyRange : rangeOf(valueNode) });
    if (first !== undefined && 'value' in first) {
      const line = settings.source?.lines.linePos(first.key?.[0] ?? first.value[0]).line;
      const where = line === undefined ? '' : `, first on line ${line}`;
      problems.push({ pointer: child, message: `is given twice${where}`, at: 'key' });
    }
    // A key without a value is a section whose lines are commented out: its defaults apply.
    if (!isEmpty) entries.set(key, readNode(reader, valueNode, child));
  }
  return Object.fromEntries(entries);
}

function keyText(node: Scalar): string {
  return showVariables(typeof node.value === 'string' ? node.value : (node.source ?? String(node.value)));
}

/** Resolves aliases of single values only, because a few aliases of nested aliases can fill the memory. */
function readAlias(reader: Reader, alias: Alias, pointer: string): unknown {
  const target = alias.resolve(reader.document);
  if (isScalar(target)) return readScalar(reader, target, pointer);
  reader.problems.push({
    pointer,
    message:
      target === undefined
        ? 'no value before this has this anchor'
        : 'an alias can only stand for a single value, not for a list or a map',
  });
  return null;
}

function readScalar(
  { environment, settings, problems, rounded, names }: Reader,
  node: Scalar,
  pointer: string,
): unknown {
  if (typeof node.value !== 'string') {
    if (isRounded(node)) {
      const message = `${node.source} has more digits than a number keeps and would become ${Number(node.value)}. Use fewer digits`;
      rounded.push({ pointer, message });
    }
    return node.value;
  }
  const text = showVariables(node.value);
  const replaced = interpolate(text, environment ?? {});
  if (replaced === undefined) return text;
  if (environment === undefined) {
    const [name] = replaced.names;
    if (name === undefined) {
      const suggestion = 'write the value. Variables are replaced only in the file';
      problems.push(...replaced.problems.map(({ message }) => ({ pointer, message, suggestion })));
    } else {
      const message = `contains \${${name}}, which is replaced only in the file`;
      problems.push({ pointer, message, suggestion: `write the value of ${name}` });
    }
    return text;
  }
  for (const name of replaced.names) names.add(name);
  for (const { span, ...problem } of replaced.problems) {
    // The value has the variables replaced, so a span of it would lead elsewhere.
    const range =
      settings.source && rangeOfSpan(settings.source, { value: text, range: rangeOf(node), span });
    problems.push({ pointer, ...problem, ...(range !== undefined && { range }) });
  }
  settings.fromVariables.add(pointer);
  return replaced.text;
}

function isRounded({ value, source }: Scalar): boolean {
  if (typeof value !== 'number' || !Number.isFinite(value) || source === undefined) return false;
  return !decimal(source.replace('+', '')).eq(String(value));
}

function rangeOf(node: Node | null): Range {
  const [start, end] = node?.range ?? [0, 0];
  return [start, end];
}
