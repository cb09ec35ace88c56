/**
 * V8's optimizing compiler for WebAssembly. Its flags belong to the whole process, threads included, and V8 reads them when it
 * compiles a function, which is when the function is first called.
 */
import { setFlagsFromString } from 'node:v8';
import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads';

const FLAGS = ['wasm-tier-up', 'wasm-dynamic-tiering'];
/** Threads that start later find this in their environment data. */
const MARK = 'chainbell: WebAssembly is not optimized';

/**
 * From now on, V8 doesn't optimize WebAssembly functions that it compiles, except within `optimizedWasm`. Optimizing those of
 * PostgreSQL takes 500 MiB of memory (docs/explanation/decisions.md, 113).
 */
export function stopOptimizingWasm(): void {
  setEnvironmentData(MARK, true);
  setFlags('no-');
}

/** Creates a small module whose speed matters. `use` must call the functions that V8 may optimize. */
export async function optimizedWasm<T>(create: () => Promise<T>, use: (created: T) => void): Promise<T> {
  const isStopped = getEnvironmentData(MARK) === true;
  if (isStopped) setFlags('');
  try {
    const created = await create();
    use(created);
    return created;
  } finally {
    if (isStopped) setFlags('no-');
  }
}

function setFlags(prefix: '' | 'no-'): void {
  for (const flag of FLAGS) setFlagsFromString(`--${prefix}${flag}`);
}
