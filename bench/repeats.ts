/**
 * Helpers that benchmarks with several contestants share: numbers from the command line, the order of runs, and result files.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { loadavg } from 'node:os';

/** The figures of one run. The names contain the units. */
export type Figures = Record<string, number>;
/** The figures of a run. If it failed, `failure` says why, and `figures` holds only the load before the run. */
export type Outcome = { figures: Figures; failure?: string };

/** @throws Error for anything except an integer from 1 to `max`. */
export function parseCount(text: string, max: number): number {
  if (!/^[1-9]\d{0,9}$/.test(text) || Number(text) > max) throw new Error(`${text} is not a count`);
  return Number(text);
}

/** The tasks of this repeat (counted from 1). Every second repeat reverses the order. */
export function inTurn<T>(tasks: readonly T[], repeat: number): readonly T[] {
  return repeat % 2 === 1 ? tasks : tasks.toReversed();
}

/** Runs it and records the machine's load beforehand. A contestant's failure becomes part of the results. */
export async function outcomeOf(run: () => Promise<Figures>): Promise<Outcome> {
  const load = Number(loadavg()[0]?.toFixed(1));
  try {
    return { figures: { load, ...(await run()) } };
  } catch (error) {
    return { failure: String(error), figures: { load } };
  }
}

/** bench/results/NAME.json. Each part is replaced separately. */
export function resultsFile<Results extends object>(name: string) {
  const file = new URL(`./results/${name}.json`, import.meta.url);
  return {
    /** The stored results; empty before the first run. */
    async read(): Promise<Partial<Results>> {
      return JSON.parse(await readFile(file, 'utf8').catch(() => '{}'));
    },
    async write(results: Partial<Results>): Promise<void> {
      await mkdir(new URL('.//', file), { recursive: true });
      await writeFile(file, `${JSON.stringify(results, null, 2)}\n`);
    },
  };
}
