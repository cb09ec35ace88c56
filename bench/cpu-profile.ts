/**
 * Turns V8 profiles (`--cpu-prof`) into tables of the functions with the most self time.
 */
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** https://chromedevtools.github.io/devtools-protocol/tot/Profiler/#type-Profile */
type CpuProfile = {
  nodes: { id: number; callFrame: { functionName: string; url: string; lineNumber: number } }[];
  samples: number[];
  timeDeltas: number[];
};

type SelfTime = { function: string; selfMs: number; percent: number };

const FUNCTIONS = 25;
const ROOT = fileURLToPath(new URL('../', import.meta.url));

/** Node flags that make a program write its profiles to a folder when it ends. */
export function profileFlags(folder: string): string[] {
  return ['--cpu-prof', `--cpu-prof-dir=${folder}`];
}

/** Reads the profiles in a folder, by thread (`main thread`, `worker n`), and prints them. */
export async function readProfiles(folder: string): Promise<Record<string, SelfTime[]>> {
  const threads: Record<string, SelfTime[]> = {};
  for (const file of (await readdir(folder)).sort()) {
    // The format is CPU.<day>.<time>.<process>.<thread>.<sequence>.cpuprofile; thread 0 is the main one.
    const thread = file.split('.')[4];
    const parsed: CpuProfile = JSON.parse(await readFile(path.join(folder, file), 'utf8'));
    const name = thread === '0' ? 'main thread' : `worker ${thread}`;
    const list = listBySelfTime(parsed);
    process.stdout.write(`\n${name}\n`);
    console.table(list);
    threads[name] = list;
  }
  return threads;
}

function listBySelfTime({ nodes, samples, timeDeltas }: CpuProfile): SelfTime[] {
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
  const file = url.replace(`file://${ROOT}`, '').replace(/^(.*\/)?node_modules\//, '');
  return `${name} ${file}:${lineNumber + 1}`;
}
