/**
 * Where Chainbell's time goes in a back-fill: the functions with the most self time, of the main thread and of each
 * worker.
 */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
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
const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Runs one proved back-fill under V8's profiler and prints the tables. */
export async function profile(chain: BenchChain): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-profile-'));
  try {
    const contestant = chainbell({ verify: 'auto', flags: ['--cpu-prof', `--cpu-prof-dir=${folder}`] });
    const run = await backfill(contestant, { chain, blocks: chain.head() });
    console.table([run]);
    for (const file of (await readdir(folder)).sort()) {
      // CPU.<day>.<time>.<process>.<thread>.<sequence>.cpuprofile; thread 0 is the main one.
      const thread = file.split('.')[4];
      const parsed: CpuProfile = JSON.parse(await readFile(path.join(folder, file), 'utf8'));
      process.stdout.write(`\n${thread === '0' ? 'main thread' : `worker ${thread}`}\n`);
      console.table(listBySelfTime(parsed));
    }
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
