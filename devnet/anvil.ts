/**
 * A local chain: one anvil process on loopback that ends with this process.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Fault } from '../src/core/fault.ts';
import { findFreePort } from './free-port.ts';
import { type ChildFolder, endOrphans, recordChild } from './orphans.ts';

export type AnvilOptions = {
  /** 0 or absent means any free port. */
  port?: number;
  /** Stores blocks, transactions, receipts and traces of the newest blocks. One running anvil per folder. */
  stateFile?: string;
  /** Absent means that each transaction gets a block at once. */
  blockTimeSeconds?: number;
  chainId?: number;
  extraArguments?: readonly string[];
};

export type Anvil = {
  /** http://127.0.0.1:port */
  url: string;
  /** ws://127.0.0.1:port */
  wsUrl: string;
  port: number;
  pid: number;
  /** Resolves with the reason when the process has ended. */
  ended: Promise<string>;
  /** Saves the state if there is a state file, and ends the process. May be called again. */
  stop(): Promise<void>;
  /**
   * The result of one JSON-RPC call.
   * @throws Fault `unavailable` if the node does not answer, `invalid` if it answers with an error
   */
  rpc(method: string, params?: readonly unknown[]): Promise<unknown>;
  [Symbol.asyncDispose](): Promise<void>;
};

const READY_MS_MAX = 15_000;
const STOP_MS_MAX = 10_000;
const CALL_MS_MAX = 30_000;
const LOOK_AGAIN_MS = 20;
/**
 * Bounds what a killed anvil loses. A follower may then be ahead of the chain, however short this interval is. Each save writes
 * everything, about 8 kB for each transaction and 0.5 MB for each historical state.
 */
const STATE_INTERVAL_SECONDS = 300;
/**
 * Without historical states, a restarted anvil has blocks and receipts but can neither trace nor replace them. A follower
 * still requests the newest blocks.
 */
const PAST_STATES_MAX = 64;
/** Another process may take a free port before anvil uses it. */
const PORT_ATTEMPTS_MAX = 3;
const ERROR_TEXT_CHARACTERS_MAX = 2_000;

/**
 * Starts anvil and waits until it answers. It first ends processes that an earlier, killed start left running.
 * @throws Fault `not_found` if there is no anvil for this platform, `conflict` if the port is taken or a running
 * process uses the state file's folder, and `unavailable` if anvil exits at once (with its reason, for example a state file
 * that it can't load) or does not answer in time
 */
export async function startAnvil(options: AnvilOptions = {}): Promise<Anvil> {
  const binary = findBinary();
  const children = childFolder(options.stateFile);
  await endOrphans(children, { shared: options.stateFile === undefined });

  const isPortOurChoice = options.port === undefined || options.port === 0;
  for (let attempt = 1; ; attempt++) {
    // Checked before anvil starts, because another node on that port would answer in its place.
    const port = await findFreePort(options.port ?? 0);
    try {
      return await startOnPort(binary, children, { ...options, port });
    } catch (error) {
      const isPortTaken = error instanceof Fault && error.code === 'conflict';
      if (!isPortTaken || !isPortOurChoice || attempt === PORT_ATTEMPTS_MAX) throw error;
    }
  }
}

async function startOnPort(
  binary: string,
  children: ChildFolder,
  options: AnvilOptions & { port: number },
): Promise<Anvil> {
  const { port } = options;
  const url = `http://127.0.0.1:${port}`;
  // anvil writes historical states here, beyond some hundreds. By default it would leave them in the user's home forever.
  const ownFolder = mkdtempSync(join(tmpdir(), 'chainbell-anvil-'));
  const pastStates = ['--cache-path', join(ownFolder, 'states')];
  // anvil writes this once it listens. An answer on the port proves nothing, because another process may have taken the port.
  const listening = join(ownFolder, 'listening.json');
  // Retries, because anvil may still be writing when this process exits.
  const forgetPast = () => rmSync(ownFolder, { recursive: true, force: true, maxRetries: 5 });
  const child = spawn(binary, [...anvilArguments(options), ...pastStates, '--config-out', listening], {
    stdio: ['ignore', 'ignore', 'pipe'],
    // In a separate process group, so that Ctrl-C reaches only this process, which ends anvil last.
    detached: true,
    windowsHide: true,
  });
  const ended = watchEnd(child);
  const { pid } = child;
  if (pid === undefined) throw new Fault('unavailable', `anvil did not start: ${await ended}`);
  const forgetChild = recordChild(children, pid);
  const endWithUs = () => {
    child.kill('SIGTERM');
    forgetPast();
  };
  process.on('exit', endWithUs);
  void ended.then(() => {
    process.off('exit', endWithUs);
    forgetChild();
    forgetPast();
  });

  let stopping: Promise<void> | undefined;
  const stop = () => (stopping ??= endChild(child, ended));
  try {
    await waitUntilReady(url, { listening, ended });
  } catch (error) {
    await stop();
    throw error;
  }
  // It doesn't keep this process running. The exit handler ends it.
  child.unref();
  if (child.stderr instanceof Socket) child.stderr.unref();
  return {
    url,
    wsUrl: `ws://127.0.0.1:${port}`,
    port,
    pid,
    ended,
    stop,
    rpc: (method, params = []) => call(url, method, params),
    [Symbol.asyncDispose]: stop,
  };
}

function anvilArguments(options: AnvilOptions & { port: number }): string[] {
  const { port, stateFile, blockTimeSeconds, chainId, extraArguments = [] } = options;
  return [
    ...['--quiet', '--host', '127.0.0.1', '--port', `${port}`],
    ...(stateFile === undefined ? [] : stateArguments(stateFile)),
    ...(blockTimeSeconds === undefined ? [] : ['--block-time', `${blockTimeSeconds}`]),
    ...(chainId === undefined ? [] : ['--chain-id', `${chainId}`]),
    // anvil can hang for good when it is traced for the callTracer while it mines (decision 154): with two threads (two cores) about
    // once in 5,000 blocks. More threads make that rarer for clients that trace so (foundry issue 10452 reports the same).
    '--threads',
    '16',
    ...extraArguments,
  ];
}

function stateArguments(stateFile: string): string[] {
  const saving = ['--state', stateFile, '--state-interval', `${STATE_INTERVAL_SECONDS}`];
  return [...saving, '--preserve-historical-states', '--prune-history', `${PAST_STATES_MAX}`];
}

/** The native program instead of the package's launcher, which would be one more process to end. */
function findBinary(): string {
  const platforms: Partial<Record<string, string>> = { win32: 'win32', darwin: 'darwin', linux: 'linux' };
  const architectures: Partial<Record<string, string>> = { x64: 'amd64', arm64: 'arm64' };
  const name = `@foundry-rs/anvil-${platforms[process.platform]}-${architectures[process.arch]}`;
  // The platform's package is a dependency of @foundry-rs/anvil.
  const toolsRequire = createRequire(new URL('../tools/package.json', import.meta.url));
  try {
    const launcherRequire = createRequire(toolsRequire.resolve('@foundry-rs/anvil/package.json'));
    const folder = dirname(launcherRequire.resolve(`${name}/package.json`));
    const binary = join(folder, 'bin', process.platform === 'win32' ? 'anvil.exe' : 'anvil');
    if (existsSync(binary)) return binary;
  } catch (cause) {
    throw new Fault('not_found', missingBinaryMessage(name), { cause });
  }
  throw new Fault('not_found', missingBinaryMessage(name));
}

function missingBinaryMessage(name: string): string {
  return `no anvil for ${process.platform} ${process.arch}: package ${name} is missing. Remove tools/node_modules and run npm start to install it`;
}

/** Without a state file, all processes of the same user on the machine share the folder. */
function childFolder(stateFile: string | undefined): ChildFolder {
  const user = process.getuid?.() ?? 'user';
  const folder = stateFile === undefined ? join(tmpdir(), `chainbell-devnet-${user}`) : dirname(stateFile);
  return { folder, program: 'anvil' };
}

function watchEnd(child: ChildProcess): Promise<string> {
  let text = '';
  child.stderr?.setEncoding('utf8');
  child.stderr?.on('data', (chunk: string) => {
    text = (text + chunk).slice(-ERROR_TEXT_CHARACTERS_MAX);
  });
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('close', (code, signal) =>
      resolve(firstLine(text) ?? `ended with ${signal ?? `exit code ${code}`}`),
    );
  });
}

/** The text after it is advice about the command line, which the user did not type. */
function firstLine(text: string): string | undefined {
  return text
    .split('\n')
    .map((line) => line.trim())
    .find((line) => line !== '');
}

async function waitUntilReady(
  url: string,
  { listening, ended }: { listening: string; ended: Promise<string> },
): Promise<void> {
  let endedWith: string | undefined;
  void ended.then((reason) => {
    endedWith = reason;
  });
  const answers = () =>
    call(url, 'eth_chainId', []).then(
      () => true,
      () => false,
    );
  const deadline = Date.now() + READY_MS_MAX;
  while (Date.now() < deadline) {
    const isReady = existsSync(listening) && (await answers());
    if (endedWith !== undefined) {
      const code = /address already in use/i.test(endedWith) ? 'conflict' : 'unavailable';
      throw new Fault(code, `anvil on ${url}: ${endedWith}`);
    }
    if (isReady) return;
    await Promise.race([delay(LOOK_AGAIN_MS), ended]);
  }
  throw new Fault('unavailable', `anvil on ${url} did not answer within ${READY_MS_MAX / 1000} s`);
}

async function endChild(child: ChildProcess, ended: Promise<string>): Promise<void> {
  child.ref();
  child.kill('SIGTERM');
  const giveUp = new AbortController();
  const killLater = delay(STOP_MS_MAX, undefined, { signal: giveUp.signal }).then(
    () => child.kill('SIGKILL'),
    () => false,
  );
  await ended;
  giveUp.abort();
  await killLater;
}

async function call(url: string, method: string, params: readonly unknown[]): Promise<unknown> {
  let answer: unknown;
  try {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
      signal: AbortSignal.timeout(CALL_MS_MAX),
    });
    answer = await response.json();
  } catch (cause) {
    throw new Fault('unavailable', `${method} on ${url}`, { cause });
  }
  if (typeof answer === 'object' && answer !== null) {
    if ('result' in answer) return answer.result;
    if ('error' in answer) throw new Fault('invalid', `${method}: ${errorText(answer.error)}`);
  }
  throw new Fault('unavailable', `${method} on ${url}: not a JSON-RPC answer`);
}

function errorText(error: unknown): string {
  return typeof error === 'object' && error !== null && 'message' in error
    ? String(error.message)
    : String(error);
}
