/**
 * What benchmarks with several contestants share: numbers on the command line, turns, and the file of their results.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { loadavg } from 'node:os';

/** What one run came to; units are in the names. */
export type Figures = Record<string, number>;
/** Figures of a run, or with `failure` why it has no others than the load before it. */
export type Outcome = { figures: Figures; failure?: string };

/** @throws Error for anything but a whole number from 1 to `max`. */
export function parseCount(text: string, max: number): number {
  if (!/^[1-9]\d{0,9}$/.test(text) || Number(text) > max) throw new Error(`${text} is not a count`);
  return Number(text);
}

/** The tasks of this repeat, from 1, in an order that turns around each time. */
export function inTurn<T>(tasks: readonly T[], repeat: number): readonly T[] {
  return repeat % 2 === 1 ? tasks : tasks.toReversed();
}

/** Runs it with the machine's load beforehand; a contestant that fails is a result too. */
export async function outcomeOf(run: () => Promise<Figures>): Promise<Outcome> {
  const load = Number(loadavg()[0]?.toFixed(1));
  try {
    return { figures: { load, ...(await run()) } };
  } catch (error) {
    return { failure: String(error), figures: { load } };
  }
}

/** bench/results/NAME.json, whose parts are replaced one by one. */
export function resultsFile<Results extends object>(name: string) {
  const file = new URL(`./results/${name}.json`, import.meta.url);
  return {
    /** What is there; nothing before the first run. */
    async read(): Promise<Partial<Results>> {
      return JSON.parse(await readFile(file, 'utf8').catch(() => '{}'));
    },
    async write(results: Partial<Results>): Promise<void> {
      await mkdir(new URL('.//', file), { recursive: true });
      await writeFile(file, `${JSON.stringify(results, null, 2)}\n`);
    },
  };
}
