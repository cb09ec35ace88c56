/**
 * The setup that all contestants of the delivery benchmarks share: a durable PostgreSQL server and a receiver.
 */
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Agent, request } from 'undici';
import { createAuthority } from '../../test/kit/certificates.ts';
import { startPostgresServer } from '../../test/kit/postgres-server.ts';
import type { SinkStats } from './sink.ts';

export type Sink = {
  port: number;
  protocol: 'http' | 'https';
  /** The certificate of its certificate authority (PEM). */
  caFile: string | undefined;
  /** Returns the statistics since the last call. */
  takeStats(): Promise<SinkStats>;
  [Symbol.asyncDispose](): Promise<void>;
};

const SINK = fileURLToPath(new URL('./sink.ts', import.meta.url));
/** The number of receiver addresses, from 127.0.1.1 on, that TLS certificates name. */
const HOSTS_MAX = 4;

/** Starts a server with fsync on, for createTestDatabase. Undefined where TEST_DATABASE_URL names one. */
export async function startDurableServer(): Promise<AsyncDisposable> {
  const given = process.env.TEST_DATABASE_URL;
  if (given !== undefined && given !== '') return { async [Symbol.asyncDispose]() {} };
  const server = await startPostgresServer({ isDurable: true });
  process.env.TEST_DATABASE_URL = server.url;
  return {
    async [Symbol.asyncDispose]() {
      delete process.env.TEST_DATABASE_URL;
      await server.stop();
    },
  };
}

/** Host number `index` of the receiver. Each host is a separate origin. */
export function hostOf(index: number): string {
  return `127.0.${1 + Math.floor(index / 250)}.${1 + (index % 250)}`;
}

export async function startSink(protocol: 'http' | 'https'): Promise<Sink> {
  await using parts = new AsyncDisposableStack();
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-sink-'));
  parts.defer(() => rm(folder, { recursive: true, force: true }));
  const files = {
    key: path.join(folder, 'key'),
    cert: path.join(folder, 'cert'),
    ca: path.join(folder, 'ca'),
  };
  if (protocol === 'https') {
    const authority = createAuthority();
    const { key, cert } = authority.issue(Array.from({ length: HOSTS_MAX }, (_, index) => hostOf(index)));
    await Promise.all([
      writeFile(files.key, key),
      writeFile(files.cert, cert),
      writeFile(files.ca, authority.certificate),
    ]);
  }
  const child = spawn(process.execPath, [...process.execArgv, SINK], {
    env: {
      ...process.env,
      ...(protocol === 'https' && { SINK_KEY_FILE: files.key, SINK_CERT_FILE: files.cert }),
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()));
  parts.defer(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  const port = await new Promise<number>((resolve) =>
    createInterface(child.stdout).once('line', (line) => resolve(Number(line))),
  );
  const dispatcher = new Agent({ connect: { rejectUnauthorized: false } });
  parts.defer(() => dispatcher.destroy());
  const running = parts.move();
  return {
    port,
    protocol,
    caFile: protocol === 'https' ? files.ca : undefined,
    async takeStats() {
      const { body } = await request(`${protocol}://127.0.0.1:${port}/stats`, { dispatcher });
      return JSON.parse(await body.text());
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}
