/**
 * Chainbell beside Ponder on the same chain and the same PostgreSQL server, one after another:
 * `npm run bench -- follow [--repeats 5] [--blocks 2000] [--only TEXT]`, its parts `follow/backfill`, `follow/linear`
 * and `follow/live`; `follow --profile` tells where Chainbell's time goes, `follow --table` prints the last results.
 */
import { loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import { describeMachine } from '../machine.ts';
import { backfill } from './backfill.ts';
import { type BenchChain, startBenchChain } from './chain.ts';
import { chainbell } from './chainbell.ts';
import type { Contestant } from './contestant.ts';
import { profile } from './profile.ts';
import { type Outcome, type Part, parts, readResults, writeResults } from './results.ts';

type Task = {
  contestant: Contestant;
  blocks: number;
  run(chain: BenchChain): Promise<Record<string, number>>;
};

const proved = chainbell({ verify: 'auto' });
const unproved = chainbell({ verify: 'off' });

export async function follow(words: string[]): Promise<void> {
  const { positionals, values } = parseArgs({
    args: words,
    allowPositionals: true,
    options: {
      repeats: { type: 'string', default: '5' },
      blocks: { type: 'string', default: '2000' },
      only: { type: 'string', default: '' },
      profile: { type: 'boolean', default: false },
    },
  });
  const blocks = Number(values.blocks);
  const asked = parts.filter((part) =>
    positionals.some((word) => word === 'follow' || word === `follow/${part}`),
  );
  await using chain = await startBenchChain(blocks);
  if (values.profile) return await profile(chain);
  for (const part of asked) {
    const tasks = tasksOf(part, blocks).filter(({ contestant }) => contestant.name.includes(values.only));
    await runPart(part, { tasks, repeats: Number(values.repeats), chain });
  }
}

function tasksOf(part: Part, blocks: number): Task[] {
  const fill = (contestant: Contestant, count: number): Task => ({
    contestant,
    blocks: count,
    run: (chain) => backfill(contestant, { chain, blocks: count }),
  });
  switch (part) {
    case 'backfill':
      return [unproved, proved].map((contestant) => fill(contestant, blocks));
    case 'linear':
      return [blocks / 4, blocks / 2, blocks].map((count) => fill(proved, count));
    case 'live':
      return [];
  }
}

/** Every task once in each repeat, in an order that turns around each time. */
async function runPart(
  part: Part,
  { tasks, repeats, chain }: { tasks: readonly Task[]; repeats: number; chain: BenchChain },
): Promise<void> {
  const results = await readResults();
  const runs: Outcome[] = [];
  results[part] = { machine: describeMachine(), conditions: await describeConditions(chain), runs };
  for (let repeat = 1; repeat <= repeats; repeat += 1) {
    for (const task of repeat % 2 === 1 ? tasks : tasks.toReversed()) {
      const outcome = await runTask(task, repeat, chain);
      runs.push(outcome);
      process.stdout.write(`${part} ${JSON.stringify(outcome)}\n`);
      await writeResults(results);
    }
  }
}

/** A contestant that fails is a result too. */
async function runTask(
  { contestant, blocks, run }: Task,
  repeat: number,
  chain: BenchChain,
): Promise<Outcome> {
  const load = Number(loadavg()[0]?.toFixed(1));
  const outcome = { contestant: contestant.name, blocks, repeat };
  try {
    return { ...outcome, figures: { load, ...(await run(chain)) } };
  } catch (error) {
    return { ...outcome, failure: String(error), figures: { load } };
  }
}

async function describeConditions(chain: BenchChain): Promise<Record<string, string | number>> {
  return {
    chain: String(await chain.rpc('web3_clientVersion')),
    database: "PostgreSQL, tests' settings",
    tokenTransfersPerBlock: chain.countsUpTo(1).token,
    nativeTransfersPerBlock: chain.countsUpTo(1).native,
  };
}
