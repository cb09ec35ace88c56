/**
 * Shows where Chainbell's time goes during delivery: the functions with the most self time. Writes
 * bench/results/deliver-profile.json.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { profileFlags, readProfiles } from '../cpu-profile.ts';
import { describeMachine } from '../machine.ts';
import type { Sink } from './stage.ts';
import { chainbell, throughput } from './throughput.ts';

const RESULT = new URL('../results/deliver-profile.json', import.meta.url);
const LANES = 20;

/** Runs the part `http` once under V8's profiler, prints the tables and writes them. */
export async function profile(sink: Sink, rows: number): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-profile-'));
  try {
    const run = await throughput(chainbell(LANES, profileFlags(folder)), sink, rows);
    console.table([run]);
    const threads = await readProfiles(folder);
    const result = { scenario: 'deliver --profile', machine: describeMachine(), rows, run, threads };
    await writeFile(RESULT, `${JSON.stringify(result, null, 2)}\n`);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
