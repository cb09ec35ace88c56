/**
 * Work of which only so much goes on at a time; the rest waits in the order in which it came.
 */

export type InTurn = <T>(work: () => Promise<T>) => Promise<T>;

export function createTurns(countMax: number): InTurn {
  const waiting: (() => void)[] = [];
  let count = 0;
  return async (work) => {
    if (count < countMax) count += 1;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      // A place is handed on, so that nothing that comes now takes it.
      const next = waiting.shift();
      if (next === undefined) count -= 1;
      else next();
    }
  };
}
