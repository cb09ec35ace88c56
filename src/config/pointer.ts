/**
 * Where a key stands, as a JSON pointer (`/pairs/0/address`): the notation of the validator's errors.
 */

/** The pointer of a key or of a list's entry below `parent`; the root is ''. */
export function childPointer(parent: string, key: string | number): string {
  return `${parent}/${String(key).replaceAll('~', '~0').replaceAll('/', '~1')}`;
}

/** The pointer one level up; that of the root is the root. */
export function parentPointer(pointer: string): string {
  return pointer.slice(0, Math.max(0, pointer.lastIndexOf('/')));
}

/** The keys on the way to a pointer. */
export function keysOf(pointer: string): string[] {
  return pointer
    .split('/')
    .slice(1)
    .map((key) => key.replaceAll('~1', '/').replaceAll('~0', '~'));
}

/** How people write it: `pairs[0].address`; '' for the root. */
export function displayPath(pointer: string): string {
  return keysOf(pointer).reduce((path, key) => {
    if (/^\d+$/.test(key)) return `${path}[${key}]`;
    return path === '' ? key : `${path}.${key}`;
  }, '');
}

/** The value at a pointer, undefined where there is none. */
export function findAt(root: unknown, pointer: string): unknown {
  let value = root;
  for (const key of keysOf(pointer)) {
    if (typeof value !== 'object' || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<string, unknown>)[key];
  }
  return value;
}

/**
 * Puts a value at a pointer, making the maps on the way; does nothing where something that is not a map or a list is
 * in the way.
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
