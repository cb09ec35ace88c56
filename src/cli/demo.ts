/**
 * `chainbell demo`, also `npm start`: shows Chainbell at work on this machine, without any other service.
 */
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { type Command, InvalidArgumentError } from 'commander';
import type { DemoFacts } from '../../devnet/screen.ts';
import { abortOf } from '../core/abort.ts';
import { Fault, messageOf } from '../core/fault.ts';
import { consoleLink } from '../domain/console-link.ts';
import { exitCodes } from './exit.ts';

type Flags = {
  port?: number;
  dataDir: string;
  blockTime: number;
  fastRetries?: boolean;
  fresh?: boolean;
  json?: boolean;
};

/** `--fast-retries`: the first retry comes after 3 seconds instead of a minute. */
const fastRetryMinutes = [0.05, 0.15, 0.5, 1];
/** After this time the screen appears even without a webhook, so that the user can see what is going on. */
const FIRST_WEBHOOK_MS_MAX = 20_000;
/** Each part has its own limit for stopping. This one is the last resort. */
const STOP_MS_MAX = 30_000;

/** Adds `demo`. With --json, standard output gets one line of facts and standard error everything else. */
export function addDemoCommand(program: Command): void {
  program
    .command('demo')
    .description('run a local chain with live traffic, Chainbell, and a receiver that prints its webhooks')
    .option('--port <number>', 'port of the API (default: 8080, or a free one if 8080 is taken)', parsePort)
    .option('--data-dir <folder>', 'folder that keeps the demo between starts', './.chainbell/demo')
    .option('--block-time <seconds>', 'seconds between two blocks', parseBlockTime, 2)
    .option('--fast-retries', 'retry a failed webhook after seconds instead of minutes')
    .option('--fresh', 'discard the demo that the folder keeps, and start from nothing')
    .option('--json', 'print URLs, the API key and addresses as one line of JSON once everything runs')
    .addHelpText('after', '\nExample:\n  $ npm run --silent chainbell -- demo --fresh --fast-retries')
    .action((flags: Flags) => demo(flags, program.version() ?? ''));
}

async function demo(flags: Flags, version: string): Promise<void> {
  const interrupt = listenForInterrupt();
  const forHumans = flags.json === true ? process.stderr : process.stdout;
  const say = (line: string) => void forHumans.write(`${line}\n`);
  try {
    await runDemo(flags, version, { signal: interrupt.signal, forHumans, say });
  } catch (error) {
    if (error !== interrupt.signal.reason) return report(error);
  } finally {
    interrupt.dispose();
  }
  say('stopped');
}

async function runDemo(
  flags: Flags,
  version: string,
  { signal, forHumans, say }: { signal: AbortSignal; forHumans: NodeJS.WriteStream; say(line: string): void },
): Promise<void> {
  // Imported here because a production process must not load the development chain.
  const [{ startDemo }, { paintFor, renderScreen }, { startService }] = await Promise.all([
    import('../../devnet/demo.ts'),
    import('../../devnet/screen.ts'),
    import('../app/service.ts'),
  ]);
  const paint = paintFor(forHumans);
  const startedAt = performance.now();
  const sayStep = (text: string) => {
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
    say(`${paint('green', '✓')} ${text} ${paint('dim', `${seconds} s`)}`);
  };

  const running = await startDemo(
    { startService, version, onStep: sayStep, onLine: say },
    {
      dataFolder: flags.dataDir,
      port: flags.port,
      blockTimeSeconds: flags.blockTime,
      retryMinutes: flags.fastRetries === true ? fastRetryMinutes : undefined,
      fresh: flags.fresh === true,
    },
    signal,
  );
  try {
    const failed = running.failed.then((error) => Promise.reject(error));
    const interrupted = abortOf(signal);
    const late = delay(FIRST_WEBHOOK_MS_MAX, 'late' as const, { ref: false });
    const first = await Promise.race([running.firstWebhook, late, failed, interrupted]);
    if (signal.aborted) return;
    sayStep(first === 'late' ? 'no webhook has arrived yet' : 'first webhook received');
    if (flags.json === true) process.stdout.write(`${JSON.stringify(factsOnTheWire(running.facts))}\n`);

    const show = () => void forHumans.write(renderScreen(running.facts, paint));
    show();
    using _keys = onEnter(show);
    await Promise.race([failed, interrupted]);
  } finally {
    say('stopping …');
    await running.stop();
  }
}

/** Calls back for each line that the user enters. Without a terminal it doesn't read standard input. */
function onEnter(callback: () => void): Disposable {
  if (!process.stdin.isTTY) return { [Symbol.dispose]: () => {} };
  const lines = createInterface({ input: process.stdin }).on('line', callback);
  return { [Symbol.dispose]: () => lines.close() };
}

/** The first signal aborts. Further ones have no effect, because a terminal and npm may each send one. */
function listenForInterrupt(): { signal: AbortSignal; dispose(): void } {
  const interrupt = new AbortController();
  const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
  let giveUp: NodeJS.Timeout | undefined;
  const onSignal = () => {
    interrupt.abort();
    giveUp ??= setTimeout(() => process.exit(exitCodes.unavailable), STOP_MS_MAX).unref();
  };
  for (const name of signals) process.on(name, onSignal);
  return {
    signal: interrupt.signal,
    dispose() {
      clearTimeout(giveUp);
      // The handlers stay: a late second signal must not turn a clean stop into a killed process.
    },
  };
}

function report(error: unknown): void {
  if (!(error instanceof Fault)) throw error;
  process.stderr.write(`chainbell demo: ${messageOf(error)}\n`);
  process.exitCode =
    error.code === 'conflict' || error.code === 'invalid' ? exitCodes.config : exitCodes.unavailable;
}

function factsOnTheWire({ chain, scene, watched, ...facts }: DemoFacts) {
  const { contracts } = scene;
  return {
    version: facts.version,
    api_url: facts.apiUrl,
    api_key: facts.apiKey,
    admin_token: facts.adminToken,
    console_url: consoleLink(facts.apiUrl, { key: facts.apiKey }),
    metrics_url: facts.metricsUrl,
    receiver_url: facts.receiverUrl,
    price_feed_url: facts.priceFeedUrl,
    data_dir: facts.dataFolder,
    story: facts.story,
    retry_minutes: facts.retryMinutes,
    chain: { id: chain.id, block: chain.block, rpc_url: chain.rpcUrl, ws_url: chain.wsUrl },
    accounts: { traders: scene.traders, visitor: scene.visitor, deployer: scene.deployer },
    members: scene.members,
    contracts: {
      token: contracts.token,
      fee_token: contracts.feeToken,
      collectible: contracts.collectible,
      splitter: contracts.splitter,
      ...marketOnTheWire(scene.market),
    },
    watched_addresses: watched.map(({ id, address }) => ({ id, address })),
  };
}

function marketOnTheWire(market: DemoFacts['scene']['market']) {
  return {
    tokens: market.tokens,
    wrapped: market.wrapped,
    factory: market.factory,
    router: market.router,
    pairs: market.pairs,
    farm: market.farm,
    validator_staking: market.validatorStaking,
    vesting: { team: market.vestingTeam, advisors: market.vestingAdvisors },
    bridge: market.bridge,
    governor: market.governor,
    referrals: market.referrals,
  };
}

function parsePort(text: string): number {
  return parseInteger(text, { from: 0, to: 65_535 });
}

function parseBlockTime(text: string): number {
  return parseInteger(text, { from: 1, to: 60 });
}

function parseInteger(text: string, { from, to }: { from: number; to: number }): number {
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= from && value <= to) return value;
  throw new InvalidArgumentError(`Must be a whole number from ${from} to ${to}.`);
}
