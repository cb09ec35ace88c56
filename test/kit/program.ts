/**
 * Runs the real program as a separate process, for tests that end it by force.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { Role } from '../../src/app/roles.ts';
import { CHAIN_ID, SECRET } from './service.ts';

export type Program = {
  child: ChildProcess;
  /** The output so far. */
  log: string;
  /** Resolves when the process has ended, for any reason. */
  ended: Promise<void>;
};

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

/** Starts the program, on free ports by default. */
export function startProgram(options: {
  database: { url: string; dataDir: string };
  rpc: readonly string[];
  startBlock: number;
  confirmations?: number;
  receiver: { port: number };
  /** All roles by default. */
  roles?: readonly Role[];
  retryMinutes?: readonly number[];
  internalTransfers?: 'off';
  stopSeconds?: number;
  /** The port of the API; a free one by default. */
  port?: number;
}): Program {
  const { database, rpc, startBlock, confirmations = 0, receiver, roles } = options;
  const { retryMinutes, internalTransfers, stopSeconds, port = 0 } = options;
  const words = roles === undefined ? [] : ['--role', roles.join(',')];
  const child = spawn(process.execPath, [MAIN, 'start', ...words], {
    cwd: database.dataDir,
    env: {
      PATH: process.env.PATH,
      NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE,
      CHAINBELL_CHAIN_ID: String(CHAIN_ID),
      CHAINBELL_CHAIN_RPC: rpc.join(','),
      CHAINBELL_CHAIN_START_BLOCK: String(startBlock),
      CHAINBELL_CHAIN_CONFIRMATIONS: String(confirmations),
      CHAINBELL_DATABASE_URL: database.url,
      CHAINBELL_DATA_DIR: database.dataDir,
      CHAINBELL_SECRET: SECRET,
      CHAINBELL_HTTP_PORT: String(port),
      CHAINBELL_METRICS_PORT: '0',
      CHAINBELL_WEBHOOKS_ALLOW_HTTP: 'true',
      CHAINBELL_WEBHOOKS_ALLOW_CIDRS: '127.0.0.0/8',
      CHAINBELL_WEBHOOKS_PORTS: String(receiver.port),
      CHAINBELL_LOG_FORMAT: 'json',
      CHAINBELL_LOG_LEVEL: 'debug',
      ...(stopSeconds !== undefined && { CHAINBELL_STOP_SECONDS: String(stopSeconds) }),
      ...(internalTransfers !== undefined && { CHAINBELL_CHAIN_INTERNAL_TRANSFERS: internalTransfers }),
      ...(retryMinutes !== undefined && { CHAINBELL_WEBHOOKS_RETRY_MINUTES: retryMinutes.join(',') }),
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const program: Program = { child, log: '', ended: once(child, 'close').then(() => {}) };
  for (const output of [child.stdout, child.stderr]) {
    output.setEncoding('utf8').on('data', (text: string) => {
      program.log += text;
    });
  }
  return program;
}
