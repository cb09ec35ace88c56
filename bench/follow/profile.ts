/**
 * Shows where Chainbell's time goes in a backfill: the functions with the most self time, for the main thread and each
 * worker. Writes bench/results/follow-profile.json.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { profileFlags, readProfiles } from '../cpu-profile.ts';
import { describeMachine } from '../machine.ts';
import { backfill } from './backfill.ts';
import type { BenchChain } from './chain.ts';
import { chainbell } from './chainbell.ts';

const RESULT = new URL('../results/follow-profile.json', import.meta.url);

/** Runs one proved backfill under V8's profiler, prints the tables and writes them. */
export async function profile(chain: BenchChain): Promise<void> {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-profile-'));
  try {
    const contestant = chainbell({ verify: 'auto', flags: profileFlags(folder) });
    const run = await backfill(contestant, { chain, blocks: chain.head() });
    console.table([run]);
    const threads = await readProfiles(folder);
    const result = { scenario: 'follow --profile', machine: describeMachine(), run, threads };
    await writeFile(RESULT, `${JSON.stringify(result, null, 2)}\n`);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
