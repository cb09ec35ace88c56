/**
 * JSON pointers (`/pairs/0/address`) name places in the configuration, because the validator's errors use them.
 */

/** The pointer of a key or list entry below `parent`. The root is ''. */
export function childPointer(parent: string, key: string | number): string {
  return `${parent}/${String(key).replaceAll('~', '~0').replaceAll('/', '~1')}`;
}

/** The pointer one level up; that of the root is the root. */
export function parentPointer(pointer: string): string {
  return pointer.slice(0, Math.max(0, pointer.lastIndexOf('/')));
}

/** The keys of a pointer, outermost first. */
export function keysOf(pointer: string): string[] {
  return pointer
    .split('/')
    .slice(1)
    .map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~'));
}

/** The pointer as people write it: `pairs[0].address`; '' for the root. */
export function displayPath(pointer: string): string {
  return keysOf(pointer).reduce((path, key) => {
    if (/^\d+$/.test(key)) return `${path}[${key}]`;
    return path === '' ? key : `${path}.${key}`;
  }, '');
}

/** The value at a pointer; undefined if there is none. */
export function findAt(root: unknown, pointer: string): unknown {
  let value = root;
  for (const key of keysOf(pointer)) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<string, unknown>)[key];
  }
  return value;
}

/**
 * Sets the value at a pointer and creates missing maps on the path. Does nothing if a value on the path is neither a map
 * nor a list.
 */
export function setAt(root: Record<string, unknown>, pointer: string, value: unknown): void {
  const keys = keysOf(pointer);
  const last = keys.pop();
  if (last === undefined) return;
  let parent = root;
  for (const key of keys) {
    if (parent[key] === undefined) parent[key] = {};
    const next = parent[key];
    if (typeof next !== 'object' || next === null) return;
    parent = next as Record<string, unknown>;
  }
  parent[last] = value;
}

/** A value of a list or map, and its pointer. */
export type Entry = { pointer: string; value: unknown };

/** The entries of the list or map at a pointer; none if the value is neither. */
export function entriesOf(values: unknown, pointer: string): (Entry & { key: string })[] {
  const parent = findAt(values, pointer);
  if (typeof parent !== 'object' || parent === null) return [];
  return Object.entries(parent).map(([key, value]) => ({ pointer: childPointer(pointer, key), key, value }));
}
