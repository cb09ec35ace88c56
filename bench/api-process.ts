/**
 * Starts a process with the role `api` alone, with no chain to follow, as operators run it.
 */
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { findFreePort } from '../devnet/free-port.ts';
import { waitUntil } from '../test/kit/wait.ts';
import { type RunningProgram, startProgram } from './program.ts';

const MAIN = fileURLToPath(new URL('../src/main.ts', import.meta.url));

type ApiProcess = RunningProgram & { url: string };

/** Resolves when it listens. `flags` are for Node. */
export async function startApiProcess(
  { databaseUrl, environment = {} }: { databaseUrl: string; environment?: Record<string, string> },
  flags: readonly string[] = [],
): Promise<ApiProcess> {
  await using parts = new AsyncDisposableStack();
  const port = await findFreePort(0);
  const program = parts.use(
    await startProgram({
      // Pass on the flags of this process, because bootstrap.mjs gives the same ones to every program.
      command: [process.execPath, ...process.execArgv, ...flags, MAIN, 'start', '--role', 'api'],
      folder: path.dirname(MAIN),
      environment: {
        CHAINBELL_CHAIN_ID: '31337',
        CHAINBELL_CHAIN_RPC: 'http://127.0.0.1:1',
        CHAINBELL_DATABASE_URL: databaseUrl,
        CHAINBELL_SECRET: Buffer.alloc(32, 7).toString('base64'),
        CHAINBELL_HTTP_PORT: String(port),
        CHAINBELL_METRICS_PORT: String(await findFreePort(0)),
        ...environment,
      },
    }),
  );
  const url = `http://127.0.0.1:${port}`;
  const listens = async () => {
    await program.assertAlive();
    return fetch(`${url}/livez`).then(
      ({ ok }) => ok,
      () => false,
    );
  };
  await waitUntil(listens, { describe: 'the API to listen' });
  parts.move();
  return { ...program, url };
}
