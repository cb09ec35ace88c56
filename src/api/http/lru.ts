/**
 * Values by key, in bounded memory: the least recently used ones go when there are too many, or they are too large together.
 */

type Lru<Value> = {
  /** The value, which is the most recently used one from now on. */
  get(key: string): Value | undefined;
  /** Keeps a value in the place of the key's former one; one that is too large alone is not kept. */
  set(key: string, value: Value, bytes: number): void;
  /** This value takes more room than was said; nothing happens when it is not kept any more. */
  grow(key: string, value: Value, bytes: number): void;
  delete(key: string): void;
  /** Of all values together. */
  bytes(): number;
};

/** What a value's own object and its place take: 332 bytes were measured with keys of 60 characters. */
const OVERHEAD_BYTES = 300;

export function createLru<Value>({
  entriesMax,
  bytesMax,
}: {
  entriesMax: number;
  bytesMax: number;
}): Lru<Value> {
  type Entry = { value: Value; bytes: number };
  // A Map keeps the order of insertion: the first is the least recently used one.
  const entries = new Map<string, Entry>();
  let newest: Entry | undefined;
  let bytes = 0;

  function remove(key: string): void {
    bytes -= entries.get(key)?.bytes ?? 0;
    entries.delete(key);
  }

  function shrink(): void {
    for (const key of entries.keys()) {
      if (entries.size <= entriesMax && bytes <= bytesMax) return;
      remove(key);
    }
  }

  return {
    get(key) {
      const entry = entries.get(key);
      if (entry === undefined) return undefined;
      if (entry !== newest) {
        entries.delete(key);
        entries.set(key, entry);
        newest = entry;
      }
      return entry.value;
    },
    set(key, value, valueBytes) {
      remove(key);
      const entry = { value, bytes: valueBytes + 2 * key.length + OVERHEAD_BYTES };
      if (entry.bytes > bytesMax) return;
      entries.set(key, entry);
      newest = entry;
      bytes += entry.bytes;
      shrink();
    },
    grow(key, value, more) {
      const entry = entries.get(key);
      if (entry?.value !== value) return;
      entry.bytes += more;
      bytes += more;
      shrink();
    },
    delete: remove,
    bytes: () => bytes,
  };
}
