/**
 * A storage of the browser. Where the visitor has blocked it, values last as long as the page.
 */
type Store = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;

/** The storage that `find` returns, or a memory if it throws. */
export function storeOf(find: () => Storage): Store {
  try {
    return find();
  } catch {
    const values = new Map<string, string>();
    return {
      getItem: (name) => values.get(name) ?? null,
      setItem: (name, value) => void values.set(name, value),
      removeItem: (name) => void values.delete(name),
    };
  }
}
