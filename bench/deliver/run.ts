/**
 * Compares Chainbell's delivery with job queues that do the same work:
 * `npm run bench -- deliver [--repeats 5] [--rows 20000] [--watched 2000000] [--only TEXT]`. Its parts are `deliver/http`,
 * `deliver/https`, `deliver/processes`, `deliver/choose`, `deliver/neighbour`, `deliver/crowd`, `deliver/block` and `deliver/takeover`.
 * `deliver/fairness` has other options (fairness/run.ts). `deliver --profile` shows where Chainbell's time goes, and
 * `deliver --table` prints the last results. BullMQ needs redis-server on the PATH.
 */
import { parseArgs } from 'node:util';
import { describeMachine } from '../machine.ts';
import { inTurn, outcomeOf, parseCount } from '../repeats.ts';
import { block } from './block.ts';
import { choose } from './choose.ts';
import { fairness } from './fairness/run.ts';
import { neighbour } from './neighbour.ts';
import { processes } from './processes.ts';
import { profile } from './profile.ts';
import {
  type Figures,
  type Outcome,
  type Part,
  parts,
  readResults,
  renderTables,
  writeResults,
} from './results.ts';
import { type Sink, startDurableServer, startSink } from './stage.ts';
import { takeover } from './takeover.ts';
import { chainbell, peer, throughput } from './throughput.ts';

type Task = { part: Part; name: string; run(sinks: Record<'http' | 'https', Sink>): Promise<Figures> };

const COUNT_MAX = 9_999_999;
const DEAD_ROWS = 1_000_000;
/** A response time as that of a receiver on the internet. */
const RECEIVER_MS = 50;
/** Healthy receivers, and due rows of the hanging receiver beside them. */
const NEIGHBOURS = { receivers: 200, hangingRows: 100_000 };
const CROWD = { receivers: 5_000, hangingRows: DEAD_ROWS };

export async function deliver(words: string[]): Promise<void> {
  if (words[0] === 'deliver/fairness') return fairness(words);
  const { positionals, values } = parseArgs({
    args: words,
    allowPositionals: true,
    options: {
      repeats: { type: 'string', default: '5' },
      rows: { type: 'string', default: '20000' },
      watched: { type: 'string', default: '2000000' },
      only: { type: 'string', default: '' },
      profile: { type: 'boolean', default: false },
      table: { type: 'boolean', default: false },
    },
  });
  if (values.table) {
    process.stdout.write(renderTables(await readResults()));
    return;
  }
  const rows = parseCount(values.rows, COUNT_MAX);
  const watched = parseCount(values.watched, COUNT_MAX);
  const tasks = parts
    .filter((part) => positionals.some((word) => word === 'deliver' || word === `deliver/${part}`))
    .flatMap((part) => tasksOf(part, { rows, watched }))
    .filter(({ name }) => name.includes(values.only));
  if (tasks.length === 0 && !values.profile)
    throw new Error(`nothing to run; the parts are deliver/${parts.join(', deliver/')}`);
  await using _server = await startDurableServer();
  if (values.profile) {
    await using sink = await startSink('http');
    return await profile(sink, rows);
  }
  await using http = await startSink('http');
  await using https = await startSink('https');
  await runAll(tasks, { http, https }, { rows, repeats: parseCount(values.repeats, COUNT_MAX) });
}

function tasksOf(part: Part, { rows, watched }: { rows: number; watched: number }): Task[] {
  switch (part) {
    case 'http':
    case 'https':
      return [
        ...[chainbell(20), chainbell(1)],
        ...(['graphile-worker', 'pg-boss', 'bullmq', 'undici'] as const).map(peer),
      ].map((contestant) => {
        return { part, name: contestant.name, run: (sinks) => throughput(contestant, sinks[part], rows) };
      });
    case 'processes':
      return [0, RECEIVER_MS].flatMap((delayMs) =>
        [1, 2].map((count) => {
          const name = `${count === 1 ? '1 process' : `${count} processes`}, responses after ${delayMs} ms`;
          return { part, name, run: ({ http }) => processes(http, { count, delayMs }) };
        }),
      );
    case 'choose':
      return [0, DEAD_ROWS].map((dead) => ({ part, name: `${dead} dead rows`, run: () => choose(dead) }));
    case 'neighbour':
    case 'crowd': {
      const { receivers, hangingRows } = part === 'crowd' ? CROWD : NEIGHBOURS;
      return [0, hangingRows].map((hanging) => {
        const name = `${receivers} receivers, ${hanging} hanging rows`;
        return { part, name, run: ({ http }) => neighbour(http, { receivers, hangingRows: hanging }) };
      });
    }
    case 'block':
      return [{ part, name: 'block to webhook', run: ({ http }) => block(http, watched) }];
    case 'takeover':
      return [{ part, name: 'after SIGKILL', run: ({ http }) => takeover(http) }];
  }
}

/** Runs every task once in each repeat. Every second repeat reverses the order. */
async function runAll(
  tasks: readonly Task[],
  sinks: Record<'http' | 'https', Sink>,
  { rows, repeats }: { rows: number; repeats: number },
): Promise<void> {
  const results = await readResults();
  const machine = describeMachine();
  const conditions = { rows, database: 'PostgreSQL with fsync', sender: 'on the same machine' };
  for (const { part } of tasks) results[part] = { machine, conditions, runs: [] };
  for (let repeat = 1; repeat <= repeats; repeat += 1) {
    for (const task of inTurn(tasks, repeat)) {
      const { part, name, run } = task;
      const outcome: Outcome = { contestant: name, repeat, ...(await outcomeOf(() => run(sinks))) };
      results[part]?.runs.push(outcome);
      process.stdout.write(`${part} ${JSON.stringify(outcome)}\n`);
      await writeResults(results);
    }
  }
}
