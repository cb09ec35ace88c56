/**
 * The processes of the soak: two for each role, each with a separate way to the database that can be cut.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { residentMiBOf } from '../../bench/program.ts';
import { type Role, roles } from '../../src/app/roles.ts';
import { findFreePort } from '../kit/postgres-server.ts';
import { startTcpProxy, type TcpProxy } from '../kit/tcp-proxy.ts';
import { waitUntil } from '../kit/wait.ts';

export type SoakProcess = {
  name: string;
  role: Role;
  apiUrl: string;
  proxy: TcpProxy;
  /** Whether strikes spare it, apart from the one that ends all processes. Its memory is what the soak judges. */
  isLongLived: boolean;
  /** When the running process was started, by `performance.now()`. */
  startedAt(): number;
  /** Resolves when it is up. */
  start(): Promise<void>;
  /** Ends it with SIGKILL, or with SIGTERM and a graceful stop. @throws Error when it doesn't exit with 0 after SIGTERM */
  end(signal: 'SIGKILL' | 'SIGTERM'): Promise<void>;
  /** The end of its output, if it has ended by itself. */
  findProblem(): string | undefined;
  residentMiB(): number;
};

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const OUTPUT_CHARACTERS_MAX = 2_000;
/** Other programs may keep the machine busy. */
const START_MS_MAX = 300_000;
const START_POLL_MS = 250;

/** Two of each role on the database at this URL. The configuration is `chainbell.yaml` in the folder, where their output goes. */
export async function prepareProcesses(
  parts: AsyncDisposableStack,
  { folder, databaseUrl }: { folder: string; databaseUrl: string },
): Promise<SoakProcess[]> {
  const processes: SoakProcess[] = [];
  for (const role of roles)
    for (const number of [1, 2]) {
      const place = { name: `${role} ${number}`, role, isLongLived: number === 2 };
      processes.push(await prepare(parts, place, { folder, databaseUrl }));
    }
  return processes;
}

async function prepare(
  parts: AsyncDisposableStack,
  place: Pick<SoakProcess, 'name' | 'role' | 'isLongLived'>,
  { folder, databaseUrl }: { folder: string; databaseUrl: string },
): Promise<SoakProcess> {
  const url = new URL(databaseUrl);
  const proxy = parts.use(await startTcpProxy({ host: url.hostname, port: Number(url.port) }));
  url.port = String(proxy.port);
  const [port, metricsPort] = [await findFreePort(), await findFreePort()];
  const output = path.join(folder, `${place.name.replace(' ', '-')}.log`);
  let child: ChildProcess | undefined;
  let startedAt = 0;
  const end = async (signal: 'SIGKILL' | 'SIGTERM') => {
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, 'exit');
    child.kill(signal);
    const [code] = await exited;
    child = undefined;
    if (signal === 'SIGTERM' && code !== 0) throw new Error(`${place.name} stopped with ${code}`);
  };
  parts.defer(() => end('SIGKILL'));
  const findProblem = () => {
    if (child === undefined || (child.exitCode === null && child.signalCode === null)) return undefined;
    const text = readFileSync(output, 'utf8').slice(-OUTPUT_CHARACTERS_MAX);
    return `${place.name} ended with ${child.signalCode ?? child.exitCode}: ${text}`;
  };
  // Nothing may outlive a soak that is interrupted.
  process.once('exit', () => child?.kill('SIGKILL'));
  return {
    ...{ ...place, apiUrl: `http://127.0.0.1:${port}`, proxy },
    startedAt: () => startedAt,
    async start() {
      const log = openSync(output, 'a');
      // Pass on the flags of this process, because bootstrap.mjs gives the same ones to every program.
      child = spawn(process.execPath, [...process.execArgv, MAIN, 'start', '--role', place.role], {
        cwd: folder,
        env: {
          ...{ PATH: process.env.PATH, NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE },
          MALLOC_ARENA_MAX: process.env.MALLOC_ARENA_MAX,
          CHAINBELL_DATABASE_URL: url.href,
          CHAINBELL_HTTP_PORT: String(port),
          CHAINBELL_METRICS_PORT: String(metricsPort),
        },
        stdio: ['ignore', log, log],
      });
      closeSync(log);
      startedAt = performance.now();
      const isUp = async () => {
        if (findProblem() !== undefined) return true;
        const answer = await fetch(`http://127.0.0.1:${metricsPort}/metrics`).catch(() => undefined);
        await answer?.arrayBuffer();
        return answer?.ok;
      };
      await waitUntil(isUp, {
        describe: `${place.name} to be up`,
        timeoutMs: START_MS_MAX,
        pollMs: START_POLL_MS,
      });
    },
    end,
    findProblem,
    residentMiB: () => (child?.pid === undefined ? 0 : residentMiBOf(child.pid)),
  };
}
