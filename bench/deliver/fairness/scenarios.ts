/**
 * The fairness scenarios. Each measures 20 healthy watchers first alone and then during an attack, in the same run of the
 * service.
 */
import type { Address } from '../../../src/core/hex.ts';
import { freshAddress } from '../../../test/kit/service.ts';
import { waitUntil } from '../../../test/kit/wait.ts';
import { measure, type Newcomer, type Phase, type PhaseReport } from './measure.ts';
import type { Manner } from './receivers.ts';
import { type DatabaseKind, type Stage, setStage } from './stage.ts';

export const scenarios = {
  A: 'one watcher whose hosts never answer',
  B: '100 watchers whose hosts never answer',
  C: 'one fast watcher with a backlog',
  D: 'as A, but the hosts answer at first',
  E: 'as B, but the hosts answer at first',
} as const;
export type Scenario = keyof typeof scenarios;

export type Size = {
  everyMs: number;
  baselineBlocks: number;
  /** A and B: number of blocks. D and E: blocks after the hosts have stopped answering. C: the maximum. */
  attackBlocks: number;
  /** D and E: blocks while the hosts still answer. */
  friendlyBlocks: number;
  /** A, B, D and E: receivers of all hostile watchers together. Each has one watched address, the busy address. */
  hosts: number;
  /** C: number of due notifications. */
  rows: number;
};

type RunOptions = {
  service: string;
  database: DatabaseKind;
  isDurable: boolean;
  size: Size;
  /** Called before each phase and after it. */
  onProgress?(text: string): void;
};

const HEALTHY = 20;
const CROWD = 100;
const FAST_HOSTS = 20;
/** The fast watcher has this many watched addresses, so one block causes as many rows. */
const FAST_RECORDS = 10_000;
const BACKLOG_MS_MAX = 1_200_000;
/** Before each of these blocks of the attack, a watcher registers its first address. */
const NEWCOMER_BLOCKS = [1, 3, 5, 7, 9];
/** The first host number of newcomers. Hostile receivers start at host 0 on another port. */
const NEWCOMER_HOST = 200;
const FAST: Manner = { fromMs: 0, toMs: 0 };
const FRIENDLY: Manner = { fromMs: 20, toMs: 20 };
const HEALTHY_MANNER: Manner = { fromMs: 5, toMs: 20 };
const SETTLE_BLOCKS = 3;

/** Runs the phases of a scenario. `baseline` and `attack` are always among them. */
export async function runScenario(scenario: Scenario, options: RunOptions): Promise<PhaseReport[]> {
  const isCrowd = scenario === 'B' || scenario === 'E';
  const hostileCount = isCrowd ? CROWD : 1;
  const { service, database, isDurable, size, onProgress = () => {} } = options;
  const watchers = HEALTHY + NEWCOMER_BLOCKS.length + 2 + hostileCount;
  onProgress('setting the stage');
  await using stage = await setStage({ service, database, isDurable, watchers });
  const healthyKeys = stage.keys.slice(0, HEALTHY);
  const newcomerKeys = stage.keys.slice(HEALTHY, HEALTHY + NEWCOMER_BLOCKS.length);
  const [writer = '', orderly = ''] = stage.keys.slice(HEALTHY + NEWCOMER_BLOCKS.length);
  const hostileKeys = stage.keys.slice(-hostileCount);
  await stage.healthy.ask({ manner: HEALTHY_MANNER, keeps: true });

  const paid = healthyKeys.map(() => freshAddress());
  for (const [index, key] of healthyKeys.entries()) {
    const address = paid[index];
    if (address !== undefined)
      await stage.api.register(key, [{ address, webhook_url: stage.healthy.urlOf(index) }]);
  }
  const ordered = freshAddress();
  await stage.api.registerOrdered(orderly, { address: ordered, webhook_url: stage.healthy.urlOf(HEALTHY) });
  const busy = freshAddress();
  onProgress('registering the hostile records');
  if (scenario === 'C')
    await registerHosts(stage, hostileKeys, { busy, records: FAST_RECORDS, hosts: FAST_HOSTS });
  else await registerHosts(stage, hostileKeys, { busy, records: size.hosts, hosts: size.hosts });

  const probing = { reader: healthyKeys[0] ?? '', writer, webhookUrl: stage.healthy.urlOf(0) };
  const newcomers = newcomerKeys.map((key, index): Newcomer => {
    const url = stage.healthy.urlOf(NEWCOMER_HOST + index);
    return { block: NEWCOMER_BLOCKS[index] ?? 0, key, address: freshAddress(), url };
  });
  const reports: PhaseReport[] = [];
  const run = async (phase: Omit<Phase, 'everyMs' | 'probing' | 'ordered'>) => {
    onProgress(phase.name);
    const report = await measure(stage, { everyMs: size.everyMs, probing, ordered, ...phase });
    onProgress(JSON.stringify(report));
    if (phase.name !== 'warm-up') reports.push(report);
  };
  await run({ name: 'warm-up', blocks: SETTLE_BLOCKS, paid });
  await run({ name: 'baseline', blocks: size.baselineBlocks, paid });
  const attack = { name: 'attack', blocks: size.attackBlocks, paid, newcomers };
  switch (scenario) {
    case 'A':
    case 'B':
      await stage.hostile.ask({ manner: 'never' });
      await run({ ...attack, busy });
      return reports;
    case 'C': {
      const hostileRequests = size.rows;
      await stage.hostile.ask({ manner: FAST });
      await pileUp(stage, busy, size.rows);
      await run({ name: 'alone', blocks: size.attackBlocks, paid: [], hostileRequests });
      await drain(stage, hostileRequests);
      await pileUp(stage, busy, size.rows);
      await run({ ...attack, hostileRequests: 2 * hostileRequests });
      return reports;
    }
    case 'D':
    case 'E':
      await stage.hostile.ask({ manner: FRIENDLY });
      await run({ name: 'friendly', blocks: size.friendlyBlocks, paid, busy });
      await stage.hostile.ask({ manner: 'never' });
      await run({ ...attack, busy });
      return reports;
  }
}

/** Registers `records` watched addresses on the busy address for `hosts` receivers, in equal parts for the watchers. */
async function registerHosts(
  stage: Stage,
  keys: readonly string[],
  { busy, records, hosts }: { busy: Address; records: number; hosts: number },
): Promise<void> {
  const each = Math.ceil(records / keys.length);
  for (const [watcher, key] of keys.entries()) {
    const count = Math.min(each, records - watcher * each);
    const own = Array.from({ length: Math.max(0, count) }, (_, index) => {
      const host = (watcher * each + index) % hosts;
      return { address: busy, webhook_url: `${stage.hostile.urlOf(host)}/${index}` };
    });
    await stage.api.register(key, own);
  }
}

/** Creates due notifications, `FAST_RECORDS` with each block. Resolves when they are stored. */
async function pileUp(stage: Stage, busy: Address, rows: number): Promise<void> {
  let last = 0;
  for (let made = 0; made < rows; made += FAST_RECORDS) last = (await stage.mine([busy])).number;
  await waitUntil(async () => ((await stage.api.tip()) ?? 0) >= last, {
    timeoutMs: BACKLOG_MS_MAX,
    describe: 'the backlog to be stored',
    pollMs: 100,
  });
}

/** Waits until the hostile receivers have received `requests` requests in total. */
async function drain(stage: Stage, requests: number): Promise<void> {
  await waitUntil(
    async () => {
      await stage.program.assertAlive();
      return (await stage.hostile.ask()).requests >= requests;
    },
    { timeoutMs: BACKLOG_MS_MAX, describe: 'the backlog to be sent', pollMs: 500 },
  );
}
