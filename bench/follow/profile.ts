/**
 * Where Chainbell's time goes in a back-fill: the functions with the most self time, of the main thread and of each
 * worker, in bench/results/follow-profile.json.
 */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describeMachine } from '../machine.ts';
import { backfill } from './backfill.ts';
import type { BenchChain } from './chain.ts';
import { chainbell } from './chainbell.ts';

/** https://chromedevtools.github.io/devtools-protocol/tot/Profiler/#type-Profile */
type CpuProfile = {
  nodes: { id: number; callFrame: { functionName: string; url: string; lineNumber: number } }[];
  samples: number[];
  timeDeltas: number[];
};

const FUNCTIONS = 25;
const RESULT = new URL('../results/follow-profile.json', import.meta.url);
const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Runs one proved back-fill under V8's profiler, prints the tables and writes them. */
export async function profile(chain: BenchChain): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-profile-'));
  try {
    const contestant = chainbell({ verify: 'auto', flags: ['--cpu-prof', `--cpu-prof-dir=${folder}`] });
    const run = await backfill(contestant, { chain, blocks: chain.head() });
    console.table([run]);
    const threads: Record<string, ReturnType<typeof listBySelfTime>> = {};
    for (const file of (await readdir(folder)).sort()) {
      // CPU.<day>.<time>.<process>.<thread>.<sequence>.cpuprofile; thread 0 is the main one.
      const thread = file.split('.')[4];
      const parsed: CpuProfile = JSON.parse(await readFile(path.join(folder, file), 'utf8'));
      const name = thread === '0' ? 'main thread' : `worker ${thread}`;
      const list = listBySelfTime(parsed);
      process.stdout.write(`\n${name}\n`);
      console.table(list);
      threads[name] = list;
    }
    const result = { scenario: 'follow --profile', machine: describeMachine(), run, threads };
    await writeFile(RESULT, `${JSON.stringify(result, null, 2)}\n`);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function listBySelfTime({ nodes, samples, timeDeltas }: CpuProfile) {
  const names = new Map(nodes.map(({ id, callFrame }) => [id, nameOf(callFrame)]));
  const microseconds = new Map<string, number>();
  samples.forEach((id, index) => {
    const name = names.get(id) ?? '';
    microseconds.set(name, (microseconds.get(name) ?? 0) + (timeDeltas[index] ?? 0));
  });
  const total = [...microseconds.values()].reduce((sum, value) => sum + value, 0);
  return [...microseconds]
    .sort(([, one], [, other]) => other - one)
    .slice(0, FUNCTIONS)
    .map(([name, value]) => ({
      function: name,
      selfMs: Math.round(value / 1000),
      percent: Number(((100 * value) / total).toFixed(1)),
    }));
}

function nameOf({ functionName, url, lineNumber }: CpuProfile['nodes'][number]['callFrame']): string {
  const name = functionName === '' ? '(anonymous)' : functionName;
  if (url === '') return name;
  const file = url.replace(`file://${ROOT}`, '').replace(/^.*\/node_modules\//, '');
  return `${name} ${file}:${lineNumber + 1}`;
}
