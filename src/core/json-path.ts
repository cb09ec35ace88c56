/**
 * Parses paths to one value in a JSON document, in the notation of RFC 9535: `$.price`, `$['a'].b[0]`. It supports neither
 * filters nor wildcards.
 */

/** Names and positions, outermost first. A negative position counts from the end. */
export type JsonPath = readonly (string | number)[];

/** `.name`, `['name']`, `["name"]`, `[0]` or `[-1]`. A name after a dot may also start with a digit and contain hyphens. */
const STEP =
  /\.([\w\-\u0080-\uffff]+)|\[\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"|(-?(?:0|[1-9]\d{0,8})))\s*\]/uy;

/** The steps of a path that begins with `$`; undefined if the text isn't a path. */
export function parseJsonPath(text: string): JsonPath | undefined {
  if (!text.startsWith('$')) return undefined;
  const path: (string | number)[] = [];
  let position = 1;
  while (position < text.length) {
    STEP.lastIndex = position;
    const step = STEP.exec(text);
    if (step === null) return undefined;
    const [all, name, single, double, index] = step;
    if (index === undefined) path.push(name ?? (single ?? double ?? '').replaceAll(/\\(.)/g, '$1'));
    else path.push(Number(index));
    position += all.length;
  }
  return path;
}

/** The value at the path; undefined if there is none. */
export function findAtPath(document: unknown, path: JsonPath): unknown {
  let value = document;
  for (const step of path) {
    if (typeof value !== 'object' || value === null) return undefined;
    if (Array.isArray(value)) value = typeof step === 'number' ? value.at(step) : undefined;
    else value = Object.hasOwn(value, step) ? Reflect.get(value, step) : undefined;
  }
  return value;
}
