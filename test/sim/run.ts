/**
 * `npm run sim -- --seed N [--steps M] [--bug NAME] [--json]`: tells the story of one seed, with M turns before the
 * faults stop. The exit code is 1 when a promise was broken.
 */
import { parseArgs } from 'node:util';
import { type BugName, bugs } from './bugs.ts';
import { simulate } from './simulate.ts';
import { openStage } from './world.ts';

const { values } = parseArgs({
  options: {
    seed: { type: 'string' },
    steps: { type: 'string' },
    bug: { type: 'string', default: 'none' },
    json: { type: 'boolean' },
  },
});
const seed = parseCount('seed', values.seed);
const steps = values.steps === undefined ? {} : { steps: parseCount('steps', values.steps) };
const { bug } = values;
if (!isBug(bug)) throw new RangeError(`--bug is one of: ${Object.keys(bugs).join(', ')}`);

const stage = await openStage();
const story = await simulate(stage, { seed, bug, ...steps });
await stage[Symbol.asyncDispose]();
if (values.json === true) {
  process.stdout.write(
    `${JSON.stringify({ ...story, mishaps: Object.fromEntries(story.mishaps) }, null, 2)}\n`,
  );
} else {
  for (const line of story.lines) process.stdout.write(`${line}\n`);
  process.stderr.write(`${JSON.stringify(story.counts)}\n`);
  process.stderr.write(`seed ${seed}, ${story.steps} turns: ${story.problem ?? 'every promise was kept'}\n`);
}
process.exit(story.problem === undefined ? 0 : 1);

function parseCount(name: string, text: string | undefined): number {
  const count = Number(text);
  if (!Number.isSafeInteger(count) || count < 0) throw new RangeError(`--${name} is a whole number`);
  return count;
}

function isBug(name: string): name is BugName {
  return name in bugs;
}
