/**
 * `npm run faults [-- word …] [--json]`: tells the stories whose name contains one of the words, all of them by default,
 * and prints what became of each. The exit code is 1 when anything was lost, doubled or made up.
 */
import { parseArgs } from 'node:util';
import { messageOf } from '../../src/core/fault.ts';
import { allStories } from './stories.ts';
import { createTeller, problemsOf, type Row, type Story } from './story.ts';

const { values: flags, positionals: words } = parseArgs({
  options: { json: { type: 'boolean' } },
  allowPositionals: true,
});
const stories = allStories.filter(
  ({ name }) => words.length === 0 || words.some((word) => name.includes(word)),
);
const rows: Row[] = [];
const failed: string[] = [];
const teller = createTeller();

async function tell(story: Story): Promise<void> {
  process.stderr.write(`${story.name} …\n`);
  try {
    const row = await teller.tell(story);
    rows.push(row);
    for (const problem of problemsOf(row)) failed.push(`${story.name}: ${problem}`);
  } catch (error) {
    failed.push(`${story.name}: ${messageOf(error)}`);
  }
}

async function tellInTurn(): Promise<void> {
  for (const story of stories) if (story.isSlow !== true) await tell(story);
}

await Promise.all([tellInTurn(), ...stories.filter(({ isSlow }) => isSlow === true).map(tell)]);
await teller[Symbol.asyncDispose]();
if (flags.json === true) process.stdout.write(`${JSON.stringify(rows, null, 2)}\n`);
else console.table(rows);
for (const problem of failed) process.stderr.write(`✖ ${problem}\n`);
process.stderr.write(`${stories.length} faults, ${failed.length} problems\n`);
process.exit(failed.length > 0 || stories.length === 0 ? 1 : 0);
