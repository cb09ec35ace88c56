/**
 * Compares Chainbell with Ponder on the same chain and the same PostgreSQL server, one after the other:
 * `npm run bench -- follow [--repeats 5] [--blocks 2000] [--only TEXT]`. Its parts are `follow/backfill`, `follow/linear` and
 * `follow/live`. Three further parts run only by name: `follow/processors` on a chain with swaps, and `follow/nodes` and
 * `follow/live-nodes`, which compare one node with three. `follow --profile` shows where Chainbell's time goes, and
 * `follow --table` prints the last results.
 */
import { parseArgs } from 'node:util';
import pg from 'pg';
import { createTestDatabase } from '../../test/kit/database.ts';
import { describeMachine } from '../machine.ts';
import { inTurn, outcomeOf, parseCount } from '../repeats.ts';
import { backfill } from './backfill.ts';
import { type BenchChain, startBenchChain } from './chain.ts';
import { chainbell } from './chainbell.ts';
import type { Contestant } from './contestant.ts';
import { followLive } from './live.ts';
import { readNodeAlone } from './node-alone.ts';
import { type PonderOptions, ponder } from './ponder.ts';
import { profile } from './profile.ts';
import { type Figures, type Outcome, type Part, parts, readResults, writeResults } from './results.ts';
import { renderTables } from './table.ts';

type Task = { part: Part; name: string; blocks: number; run(): Promise<Figures> };

const proved = chainbell({ verify: 'auto' });
const unproved = chainbell({ verify: 'off' });
const withProcessors = chainbell({ verify: 'auto', processors: true });
const withOneNode = chainbell({ verify: 'auto', nodes: 1 });
const withThreeNodes = chainbell({ verify: 'auto', nodes: 3 });
const ponders = (options: Omit<PonderOptions, 'version'>) =>
  (['0.17.7', '0.16.10'] as const).map((version) => ponder({ version, ...options }));

/** Parts that run only when the command names them. */
const APART: readonly Part[] = ['processors', 'nodes', 'live-nodes'];
const COUNT_MAX = 999_999;
const LIVE_BLOCKS = 200;
/** A repeat does not start if it would probably end after this time. */
const TOTAL_MINUTES_MAX = 58;

export async function follow(words: string[]): Promise<void> {
  const { positionals, values } = parseArgs({
    args: words,
    allowPositionals: true,
    options: {
      repeats: { type: 'string', default: '5' },
      blocks: { type: 'string', default: '2000' },
      only: { type: 'string', default: '' },
      profile: { type: 'boolean', default: false },
      table: { type: 'boolean', default: false },
    },
  });
  if (values.table) {
    process.stdout.write(renderTables(await readResults()));
    return;
  }
  const asked = positionals.flatMap((word) =>
    parts.filter((part) => (word === 'follow' ? !APART.includes(part) : word === `follow/${part}`)),
  );
  const repeats = parseCount(values.repeats, COUNT_MAX);
  const swaps = asked.includes('processors');
  if (swaps && asked.length > 1)
    throw new Error('follow/processors has a chain of its own: ask for it alone');
  await using chain = await startBenchChain(parseCount(values.blocks, COUNT_MAX), { swaps });
  if (values.profile) return await profile(chain);
  const tasks = asked
    .flatMap((part) => tasksOf(part, chain))
    .filter(({ name }) => name.includes(values.only));
  if (tasks.length === 0) throw new Error(`nothing to run; the parts are follow/${parts.join(', follow/')}`);
  await runAll(tasks, { repeats, conditions: await describeConditions(chain) });
}

function tasksOf(part: Part, chain: BenchChain): Task[] {
  const fill = (contestant: Contestant, blocks: number): Task => {
    return { part, name: contestant.name, blocks, run: () => backfill(contestant, { chain, blocks }) };
  };
  const live = (contestant: Contestant): Task => {
    const run = () => followLive(contestant, LIVE_BLOCKS);
    return { part, name: contestant.name, blocks: LIVE_BLOCKS, run };
  };
  const all = chain.head();
  switch (part) {
    case 'backfill':
      return [
        { part, name: 'anvil alone', blocks: all, run: () => readNodeAlone(chain, all) },
        ...[
          unproved,
          proved,
          ...ponders({ urlCount: 20, native: true }),
          ...ponders({ urlCount: 20, native: false }),
          ...ponders({ urlCount: 1, native: false }),
        ].map((contestant) => fill(contestant, all)),
      ];
    case 'linear':
      return [all / 4, all / 2, all].map((blocks) => fill(proved, Math.round(blocks)));
    case 'processors':
      return [proved, withProcessors].map((contestant) => fill(contestant, all));
    case 'nodes':
      return [withOneNode, withThreeNodes].map((contestant) => fill(contestant, all));
    case 'live-nodes':
      return [withOneNode, withThreeNodes].map(live);
    case 'live':
      return [proved, ...ponders({ urlCount: 20, native: false })].map(live);
  }
}

/** Runs every task once in each repeat. Every second repeat reverses the order. */
async function runAll(
  tasks: readonly Task[],
  { repeats, conditions }: { repeats: number; conditions: Record<string, string | number> },
): Promise<void> {
  const startedAt = performance.now();
  const results = await readResults();
  const machine = describeMachine();
  for (const { part } of tasks) results[part] = { machine, conditions, runs: [] };
  for (let repeat = 1; repeat <= repeats; repeat += 1) {
    for (const task of inTurn(tasks, repeat)) {
      const { part, name, blocks, run } = task;
      const outcome: Outcome = { contestant: name, blocks, repeat, ...(await outcomeOf(run)) };
      results[part]?.runs.push(outcome);
      process.stdout.write(`${part} ${JSON.stringify(outcome)}\n`);
      await writeResults(results);
    }
    const minutes = (performance.now() - startedAt) / 60_000;
    if (repeat < repeats && (minutes / repeat) * (repeat + 1) > TOTAL_MINUTES_MAX) {
      process.stderr.write(
        `stopped after ${repeat} of ${repeats} repeats, which took ${Math.round(minutes)} minutes\n`,
      );
      return;
    }
  }
}

async function describeConditions(chain: BenchChain): Promise<Record<string, string | number>> {
  await using database = await createTestDatabase('postgres');
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  const { rows } = await client.query<{ server_version: string }>('show server_version');
  await client.end();
  return {
    chain: String(await chain.rpc('web3_clientVersion')),
    database: `PostgreSQL ${rows[0]?.server_version}`,
    tokenTransfersPerBlock: chain.countsUpTo(1).token,
    nativeTransfersPerBlock: chain.countsUpTo(1).native,
  };
}
