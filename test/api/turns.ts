/**
 * For tests of work that must be spread over several turns of the event loop.
 */
export async function countTurns<T>(work: () => Promise<T>): Promise<{ turns: number; result: T }> {
  let turns = 0;
  let isDone = false;
  const count = () => {
    turns += 1;
    if (!isDone) setImmediate(count);
  };
  count();
  try {
    return { result: await work(), turns };
  } finally {
    isDone = true;
  }
}
