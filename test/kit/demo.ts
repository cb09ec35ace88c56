/**
 * Runs the demo as a separate process, as `npm start` does.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestContext } from 'node:test';
import { endOrphans } from '../../devnet/orphans.ts';
import { waitUntil } from './wait.ts';

/** Three times the demo's promise for an idle machine, because test machines are busy. */
const FIRST_WEBHOOK_MS_MAX = 180_000;
const mainFile = new URL('../../src/main.ts', import.meta.url).pathname;

export type DemoFacts = {
  api_url: string;
  api_key: string;
  admin_token: string;
  receiver_url: string;
  chain: { rpc_url: string };
  price_feed_url: string;
  accounts: { visitor: string; deployer: string };
  members: string[];
};

type RunningDemo = {
  process: ChildProcess;
  /** The text on the screen. */
  text(): string;
  /** The single line on standard output, once it is printed. */
  facts(): Promise<DemoFacts>;
  exitCode: Promise<number | null>;
};

/** A folder for demos. The test's end removes the folder and ends all demos in it, even after a failure. */
export function createDemoStage(context: TestContext): {
  folder: string;
  start(...flags: string[]): RunningDemo;
} {
  const folder = mkdtempSync(join(tmpdir(), 'chainbell-test-'));
  const demos: RunningDemo[] = [];
  context.after(async () => {
    for (const { process: child, exitCode } of demos) {
      child.kill('SIGKILL');
      await exitCode;
    }
    await endOrphans({ folder: join(folder, 'demo-chain'), program: 'anvil' }, { shared: false });
    rmSync(folder, { recursive: true, force: true });
  });
  return {
    folder,
    start(...flags) {
      const demo = startDemo(folder, flags);
      demos.push(demo);
      return demo;
    },
  };
}

function startDemo(folder: string, flags: readonly string[]): RunningDemo {
  const child = spawn(process.execPath, [mainFile, 'demo', '--json', '--data-dir', folder, ...flags], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  let data = '';
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    data += chunk;
  });
  const exitCode = once(child, 'close').then(([code]): number | null => code);
  return {
    process: child,
    text: () => text,
    async facts() {
      const isThere = () => data.includes('\n') || child.exitCode !== null;
      await waitUntil(isThere, { timeoutMs: FIRST_WEBHOOK_MS_MAX, describe: 'the facts of the demo' });
      assert.equal(child.exitCode, null, text);
      return JSON.parse(data);
    },
    exitCode,
  };
}
