/**
 * The two contestants: Chainbell's API as operators start it, and Nitro with cachedEventHandler on the same tables.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { findFreePort } from '../../devnet/free-port.ts';
import { waitUntil } from '../../test/kit/wait.ts';
import { installPeer } from '../peer.ts';
import { type Program, type RunningProgram, startProgram } from '../program.ts';

export type Contestant = {
  name: string;
  /** Starts the contestant on this database. Resolves when it answers requests. */
  start(databaseUrl: string): Promise<Contending>;
};

type Contending = { url: string; program: RunningProgram; [Symbol.asyncDispose](): Promise<void> };

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const NITRO = fileURLToPath(new URL('./peers/nitro/', import.meta.url));
const BUILD_MS_MAX = 120_000;
const START_MS_MAX = 30_000;
/** Prices stay valid for a day, because this benchmark does not measure their refresh. */
const CONFIG = `
chain: { id: 31337, rpc: ["http://127.0.0.1:1"], native: { symbol: ETH } }
prices: { native: { maxAgeSeconds: 86400, sources: [{ type: fixed, price: "2500.25" }] } }
`;

export const chainbell: Contestant = {
  name: 'Chainbell',
  async start(databaseUrl) {
    const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-bench-'));
    const config = path.join(folder, 'chainbell.yaml');
    await writeFile(config, CONFIG);
    const port = await findFreePort(0);
    const contending = await startAnswering(port, {
      // Pass on the flags of this process, because bootstrap.mjs gives the same ones to every program.
      command: [process.execPath, ...process.execArgv, MAIN, 'start', '--role', 'api', '--config', config],
      folder,
      environment: {
        CHAINBELL_DATABASE_URL: databaseUrl,
        CHAINBELL_DATA_DIR: folder,
        CHAINBELL_SECRET: Buffer.alloc(32, 7).toString('base64'),
        CHAINBELL_HTTP_PORT: String(port),
        CHAINBELL_METRICS_PORT: '0',
        CHAINBELL_LOG_FORMAT: 'json',
      },
    });
    return {
      ...contending,
      async [Symbol.asyncDispose]() {
        await contending[Symbol.asyncDispose]();
        await rm(folder, { recursive: true, force: true });
      },
    };
  },
};

/** Resolves when Nitro is installed and built. */
export async function nitro(): Promise<Contestant> {
  const folder = await installPeer('nitro', NITRO, 'package.json');
  await promisify(execFile)(process.execPath, [path.join(folder, 'node_modules/.bin/nitro'), 'build'], {
    cwd: folder,
    timeout: BUILD_MS_MAX,
  });
  return {
    name: 'Nitro 2.13.6',
    async start(databaseUrl) {
      const port = await findFreePort(0);
      return startAnswering(port, {
        command: [process.execPath, path.join(folder, '.output/server/index.mjs')],
        folder,
        environment: {
          NODE_ENV: 'production',
          DATABASE_URL: databaseUrl,
          HOST: '127.0.0.1',
          PORT: String(port),
        },
      });
    },
  };
}

async function startAnswering(port: number, program: Program): Promise<Contending> {
  const running = await startProgram(program);
  const url = `http://127.0.0.1:${port}`;
  try {
    const doesAnswer = async () => {
      await running.assertAlive();
      return fetch(`${url}/api/price/native`).then(
        ({ ok }) => ok,
        () => false,
      );
    };
    await waitUntil(doesAnswer, { timeoutMs: START_MS_MAX, describe: 'an answer' });
  } catch (error) {
    await running[Symbol.asyncDispose]();
    throw error;
  }
  return { url, program: running, [Symbol.asyncDispose]: () => running[Symbol.asyncDispose]() };
}
