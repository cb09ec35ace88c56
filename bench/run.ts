/**
 * `npm run bench [-- scenario …]`: runs the scenarios, prints their tables, writes bench/results/<scenario>.json.
 * `follow`, `deliver` and `api` take up to an hour and have options (bench/follow/run.ts, bench/deliver/run.ts,
 * bench/api/run.ts). Each of them runs alone, and only on request.
 * Figures depend on the machine. Use them to compare two states of the code in one sitting; tests never assert them.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { stopOptimizingWasm } from '../src/core/wasm.ts';
import { api } from './api/run.ts';
import { bulk } from './bulk.ts';
import { capacity } from './capacity.ts';
import { cluster } from './cluster.ts';
import { commands } from './commands.ts';
import { consoleFigures } from './console.ts';
import { days } from './days.ts';
import { deliver } from './deliver/run.ts';
import { failover } from './failover.ts';
import type { Figures } from './figures.ts';
import { filter } from './filter.ts';
import { follow } from './follow/run.ts';
import { history } from './history.ts';
import { live } from './live.ts';
import { describeMachine } from './machine.ts';
import { market } from './market.ts';
import { memory } from './memory.ts';
import { memoryEmbedded } from './memory-embedded.ts';
import { profilePoints } from './points/profile.ts';
import { points } from './points.ts';
import { proof } from './proof.ts';
import { statistics } from './statistics.ts';
import { storage } from './storage.ts';
import { stream } from './stream.ts';

/** A scenario that can't run here returns undefined, and has said why. */
const scenarios: Record<string, () => Promise<Figures | undefined>> = {
  ...{
    bulk,
    capacity,
    cluster,
    commands,
    console: consoleFigures,
    days,
    failover,
    filter,
    history,
    live,
    market,
    memory,
    points,
    proof,
    statistics,
    storage,
    stream,
  },
  'memory-embedded': memoryEmbedded,
  // Proof beside an embedded database, which stops V8 from optimizing WebAssembly.
  'proof-embedded': () => {
    stopOptimizingWasm();
    return proof();
  },
};
const RESULTS = new URL('./results/', import.meta.url);

const asked = process.argv.slice(2);
const long =
  asked.join(' ') === 'points --profile'
    ? profilePoints
    : { follow, deliver, api }[asked[0]?.split('/')[0] ?? ''];
if (long !== undefined) {
  await long(asked);
  process.exit();
}
const unknown = asked.find((name) => !(name in scenarios));
if (unknown !== undefined) {
  process.stderr.write(`no scenario is called ${unknown}; there are: ${Object.keys(scenarios).join(', ')}\n`);
  process.exit(64);
}

const machine = describeMachine();
await mkdir(RESULTS, { recursive: true });
for (const [name, run] of Object.entries(scenarios)) {
  if (asked.length > 0 && !asked.includes(name)) continue;
  process.stderr.write(`${name} …\n`);
  const figures = await run();
  if (figures === undefined) continue;
  process.stdout.write(
    `\n${name}: ${Object.entries({ ...machine, ...figures.conditions })
      .map(([key, value]) => `${key} ${value}`)
      .join(', ')}\n`,
  );
  console.table(figures.rows);
  const result = { scenario: name, machine, ...figures };
  await writeFile(new URL(`${name}.json`, RESULTS), `${JSON.stringify(result, null, 2)}\n`);
}
