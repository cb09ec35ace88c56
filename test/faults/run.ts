/**
 * `npm run faults [-- word …] [--confirmations N] [--list] [--json]`: runs the stories whose name contains one of the words (by
 * default all), and prints the results. The exit code is 1 when a notification was lost, doubled or made up.
 */
import { parseArgs } from 'node:util';
import { messageOf } from '../../src/core/fault.ts';
import { allStories } from './stories.ts';
import { createTeller, problemsOf, type Row, type Story } from './story.ts';

const HELP = `npm run faults [-- word …] [--confirmations N] [--list] [--json]

Shows what a node, a chain, a database connection or a kill can do to Chainbell, on a real chain and a real PostgreSQL, and
compares what is stored and what arrived with the chain (docs/faults.md).

  word     only the stories whose name contains it, or one of them
  --confirmations N
           run them with this chain.confirmations instead of their own (0 in most)
  --list   only the names
  --json   the rows for programs

A row is clean when the fault struck and all of these are 0: stored blocks that are not the chain's (wrongBlocks), transfers
without a notification that arrived (lost), a second one (doubled), one of something that did not happen (falseNotices), blocks of
the chain that were rolled back (falseRollbacks). recoveredMs: from the end of the fault until two more blocks were delivered.
The exit code is 0 when every row is clean, 1 when one is not or no story has the word, 2 for an invalid option.
`;

const { values: flags, positionals: words } = parseWords();
if (flags.help === true) {
  process.stdout.write(HELP);
  process.exit(0);
}
const confirmations = parseConfirmations(flags.confirmations);
const stories = allStories
  .filter(({ name }) => words.length === 0 || words.some((word) => name.includes(word)))
  .map((story) =>
    confirmations === undefined ? story : { ...story, chain: { ...story.chain, confirmations } },
  );
if (flags.list === true) {
  for (const { name } of stories) process.stdout.write(`${name}\n`);
  process.exit(stories.length === 0 ? 1 : 0);
}
const rows = new Map<Story, Partial<Row> & { fault: string; problems: string[] }>();
const teller = createTeller();
const startedAt = performance.now();

await Promise.all([tellInTurn(), ...stories.filter(({ isSlow }) => isSlow === true).map(tell)]);
await teller[Symbol.asyncDispose]();
const told = stories.flatMap((story) => rows.get(story) ?? []);
const failed = told.filter(({ problems }) => problems.length > 0);
if (flags.json === true) process.stdout.write(`${JSON.stringify(told, null, 2)}\n`);
else
  console.table(told.map(({ problems, ...row }) => ({ ...row, is: problems.length === 0 ? 'clean' : '✖' })));
for (const { fault, problems } of failed) process.stderr.write(`✖ ${fault}: ${problems.join(', ')}\n`);
const seconds = Math.round((performance.now() - startedAt) / 1000);
const verdict =
  failed.length > 0 ? `${failed.length} not clean` : 'nothing lost, doubled or made up, no false rollback';
const summary =
  told.length === 0 ? 'no story has that in its name' : `${told.length} faults in ${seconds} s: ${verdict}`;
process.stderr.write(`${summary}\n`);
process.exit(failed.length > 0 || told.length === 0 ? 1 : 0);

async function tell(story: Story): Promise<void> {
  process.stderr.write(`${story.name} …\n`);
  try {
    const row = await teller.tell(story);
    rows.set(story, { ...row, problems: problemsOf(row) });
  } catch (error) {
    rows.set(story, { fault: story.name, problems: [messageOf(error)] });
  }
}

async function tellInTurn(): Promise<void> {
  for (const story of stories) if (story.isSlow !== true) await tell(story);
}

function parseConfirmations(text: string | undefined): number | undefined {
  if (text === undefined || /^\d{1,3}$/.test(text)) return text === undefined ? undefined : Number(text);
  process.stderr.write(`--confirmations: ${text} is not a number of blocks from 0 to 999.\n`);
  process.exit(2);
}

function parseWords() {
  try {
    return parseArgs({
      options: {
        help: { type: 'boolean', short: 'h' },
        confirmations: { type: 'string' },
        list: { type: 'boolean' },
        json: { type: 'boolean' },
      },
      allowPositionals: true,
    });
  } catch (error) {
    process.stderr.write(`${messageOf(error)}\n\n${HELP}`);
    process.exit(2);
  }
}
