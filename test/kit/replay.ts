/**
 * Real chain data from the folder beside the project. Tests read it directly, or from its node (replay.mjs).
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { realchainFolder } from './shared-data.ts';

const START_MS_MAX = 20_000;

/** A test with real chain data. Skipped with a message where the folder does not exist. */
export function testWithRealchain(
  name: string,
  work: (folder: string, context: TestContext) => Promise<void> | void,
): void {
  const folder = realchainFolder();
  if (folder === undefined)
    test(name, { skip: 'the real chain data is not there: ../shared/realchain' }, () => {});
  else test(name, (context) => work(folder, context));
}

/** The JSON of a file in the folder, unzipped if its name ends in .gz. The caller knows its shape. */
export function readRealchain<Shape>(folder: string, file: string): Shape {
  const bytes = readFileSync(path.join(folder, file));
  return JSON.parse((file.endsWith('.gz') ? gunzipSync(bytes) : bytes).toString('utf8')) as Shape;
}

export type ReplayNode = {
  url: string;
  /** Makes one more block visible. */
  advance(): Promise<void>;
  /** The number of calls by method. */
  calls(): Promise<Record<string, number>>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** Serves the blocks of `run` as chain 1; `startHead` is the first head. With `now`, the last block has the current time. */
export async function startReplay(
  folder: string,
  options: { run: string; startHead: number; now?: boolean },
): Promise<ReplayNode> {
  const port = await findFreePort();
  const words = ['--dir', folder, '--run', options.run, '--start-head', String(options.startHead)];
  if (options.now === true) words.push('--now');
  const child = spawn(
    process.execPath,
    [path.join(folder, 'replay.mjs'), ...words, '--port', String(port), '--chain-id', '1'],
    {
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  const exited = once(child, 'exit');
  const started = once(child.stdout, 'data', { signal: AbortSignal.timeout(START_MS_MAX) });
  await Promise.race([
    started,
    exited.then(([code]) => Promise.reject(new Error(`replay.mjs ended with code ${code}`))),
  ]);
  const url = `http://127.0.0.1:${port}`;
  const control = async (method: 'GET' | 'POST', body?: string) => {
    const response = await fetch(`${url}/_ctl`, { method, ...(body !== undefined && { body }) });
    return (await response.json()) as { head: number; calls: Record<string, number> };
  };
  return {
    url,
    async advance() {
      await control('POST', JSON.stringify({ advance: 1 }));
    },
    calls: async () => (await control('GET')).calls,
    async [Symbol.asyncDispose]() {
      child.kill('SIGKILL');
      await exited;
    },
  };
}

async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('no port is free');
  server.close();
  await once(server, 'close');
  return address.port;
}
