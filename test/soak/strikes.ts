/**
 * What strikes the soak: processes killed and stopped, connections cut, PostgreSQL restarted and failed over, a node that is down.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { down } from '../faults/node-proxy.ts';
import { waitUntil } from '../kit/wait.ts';
import type { Strike } from './oracle.ts';
import type { SoakProcess } from './processes.ts';
import type { SoakStage } from './stage.ts';

export type Striker = {
  /** One strike that the seed chooses. */
  strike(): Promise<void>;
  /** Kills all processes, and starts them again. */
  killAll(): Promise<void>;
  /** Kills the primary for good, and promotes its standby. */
  failOver(): Promise<void>;
  counts: Record<string, number>;
  /** Those after which a webhook that was under way may come again. */
  repeating: Strike[];
  /** Whether a request may have failed at this time. */
  isExcused(at: number): boolean;
};

/** How long a strike explains failed requests and webhooks that come again, after the processes are up again. */
const ECHO_MS = 20_000;
const NODE_DOWN_MS = 3_000;
/** A process that leads or delivers commits within this time. */
const COMMIT_MS_MAX = 5_000;
/** There is a block every 2 s. Without an arrival, receivers are down. */
const ARRIVAL_MS_MAX = 5_000;

export function createStriker(stage: SoakStage, onLine: (line: string) => void): Striker {
  const { random, pair, node, processes, receivers } = stage;
  const counts: Record<string, number> = {};
  const repeating: Strike[] = [];
  const all: Strike[] = [];
  const mortal = processes.filter(({ isLongLived }) => !isLongLived);

  async function run(name: string, mayRepeat: boolean, work: () => Promise<void>): Promise<void> {
    onLine(name);
    const strike = { name, startedAt: performance.now(), endedAt: Number.POSITIVE_INFINITY };
    all.push(strike);
    if (mayRepeat) repeating.push(strike);
    await work();
    strike.endedAt = performance.now() + ECHO_MS;
    counts[name] = (counts[name] ?? 0) + 1;
  }

  const replace = async (ended: readonly SoakProcess[], signal: 'SIGKILL' | 'SIGTERM') => {
    await Promise.all(ended.map((process) => process.end(signal)));
    await Promise.all(ended.map((process) => process.start()));
  };
  const delivers = ({ role }: SoakProcess) => role === 'delivery';
  const cut = async ({ proxy }: SoakProcess) => {
    await proxy.cut();
    await proxy.mend();
  };

  const strikes = [
    ...mortal.flatMap((process) => [
      () => run(`kill -9 ${process.name}`, delivers(process), () => replace([process], 'SIGKILL')),
      () => run(`stop ${process.name}`, false, () => replace([process], 'SIGTERM')),
    ]),
    () => run('kill -9 a process of each role', true, () => replace(mortal, 'SIGKILL')),
    ...processes
      .filter(({ role }) => role === 'follower' || role === 'delivery')
      .flatMap((process) => [
        () => run(`cut the connections of ${process.name}`, delivers(process), () => cut(process)),
        () =>
          run(`cut ${process.name} in mid-commit`, delivers(process), async () => {
            await Promise.race([process.proxy.cutAt('commit\0'), delay(COMMIT_MS_MAX)]);
          }),
      ]),
    ...(['SIGKILL', 'SIGQUIT', 'SIGINT'] as const).map(
      (signal) => () => run(`restart PostgreSQL with ${signal}`, true, () => pair.restart(signal)),
    ),
    () =>
      run('the node is down', false, async () => {
        node.inject(down);
        await delay(NODE_DOWN_MS);
        node.mend();
      }),
  ];

  return {
    ...{ counts, repeating },
    async strike() {
      // Right after a webhook arrives, because others are then under way.
      const before = receivers.received();
      await waitUntil(() => receivers.received() > before, { timeoutMs: ARRIVAL_MS_MAX }).catch(() => {});
      await strikes[Math.floor(random() * strikes.length)]?.();
    },
    killAll: () => run('kill -9 all processes', true, () => replace(processes, 'SIGKILL')),
    failOver: () =>
      run('fail over to the standby', true, async () => {
        await pair.killPrimary();
        await pair.promote();
        for (const { proxy } of processes) {
          proxy.target = { host: '127.0.0.1', port: pair.standby.port };
          await proxy.cut();
          await proxy.mend();
        }
      }),
    isExcused: (at) => all.some(({ startedAt, endedAt }) => startedAt <= at && at <= endedAt),
  };
}
