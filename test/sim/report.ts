/**
 * Reports a story that broke a promise: the promise, the last events before it, and the command that repeats the story.
 */
import type { Story } from './simulate.ts';

const LINES_MAX = 60;

export function reportOf({ seed, steps, problem, lines }: Story): string {
  const end = lines.slice(-LINES_MAX);
  const omitted = lines.length > end.length ? [`… ${lines.length - end.length} lines`] : [];
  return [
    `seed ${seed}: ${problem}`,
    ...omitted,
    ...end,
    `npm run sim -- --seed ${seed} --steps ${steps}`,
  ].join('\n');
}
