/**
 * `npm run sim -- --seed N [--steps M] [--bug NAME] [--json]`: runs the story of one seed, with M turns before the
 * faults stop. `--seeds 1..N` runs a range instead and prints a summary; `--minutes M` ends it early. The exit code is 1
 * when a promise was broken.
 */
import { parseArgs } from 'node:util';
import { type BugName, bugs } from './bugs.ts';
import { reportOf } from './report.ts';
import { simulate } from './simulate.ts';
import { openStage, type Stage } from './world.ts';

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    seeds: { type: 'string' },
    minutes: { type: 'string' },
    steps: { type: 'string' },
    bug: { type: 'string', default: 'none' },
    json: { type: 'boolean', default: false },
  },
});
const steps = values.steps === undefined ? {} : { steps: parseCount('steps', values.steps) };
const { bug } = values;
if (!isBug(bug)) throw new RangeError(`--bug is one of: ${Object.keys(bugs).join(', ')}`);
const PROGRESS_MS = 10_000;
const options = { bug, ...steps };
if ((values.seed === undefined) === (values.seeds === undefined))
  throw new RangeError('Give either --seed N or --seeds FIRST..LAST');

const stage = await openStage();
const isKept =
  values.seeds === undefined ? await runOne(stage, values.seed) : await runRange(stage, values.seeds);
await stage[Symbol.asyncDispose]();
process.exit(isKept ? 0 : 1);

async function runOne(on: Stage, text: string | undefined): Promise<boolean> {
  const story = await simulate(on, { seed: parseCount('seed', text), ...options });
  if (values.json) {
    print({ ...story, mishaps: Object.fromEntries(story.mishaps) });
  } else {
    for (const line of story.lines) process.stdout.write(`${line}\n`);
    process.stderr.write(`${JSON.stringify(story.counts)}\n`);
    process.stderr.write(
      `seed ${story.seed}, ${story.steps} turns: ${story.problem ?? 'every promise was kept'}\n`,
    );
  }
  return story.problem === undefined;
}

/** Runs every seed of the range, also after one that broke a promise. */
async function runRange(on: Stage, text: string): Promise<boolean> {
  const { first, last } = parseRange(text);
  const msMax = values.minutes === undefined ? Infinity : parseCount('minutes', values.minutes) * 60_000;
  const startedMs = performance.now();
  const broken: { seed: number; problem: string }[] = [];
  const counts: Record<string, number> = {};
  let seed = first;
  let toldMs = startedMs;
  for (; seed <= last && performance.now() - startedMs < msMax; seed += 1) {
    const story = await simulate(on, { seed, ...options });
    for (const [name, count] of Object.entries(story.counts)) counts[name] = (counts[name] ?? 0) + count;
    if (performance.now() - toldMs >= PROGRESS_MS) {
      toldMs = performance.now();
      process.stderr.write(`seed ${seed} of ${first}..${last}, ${broken.length} broke a promise\n`);
    }
    if (story.problem === undefined) continue;
    broken.push({ seed, problem: story.problem });
    process.stderr.write(`${reportOf(story)}\n`);
  }
  const seconds = Math.round(performance.now() - startedMs) / 1000;
  const run = seed - first;
  if (values.json) print({ first, run, seconds, broken, counts });
  else process.stdout.write(`${run} seeds from ${first} in ${seconds} s: ${broken.length} broke a promise\n`);
  return broken.length === 0;
}

function print(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
}

function parseRange(text: string): { first: number; last: number } {
  const [first, last, ...rest] = text.split('..');
  if (rest.length > 0) throw new RangeError('--seeds is a range, as 1..200');
  return { first: parseCount('seeds', first), last: parseCount('seeds', last) };
}

function parseCount(name: string, text: string | undefined): number {
  const count = Number(text === '' ? undefined : text);
  if (!Number.isSafeInteger(count) || count < 0) throw new RangeError(`--${name} is a whole number`);
  return count;
}

function isBug(name: string): name is BugName {
  return name in bugs;
}
