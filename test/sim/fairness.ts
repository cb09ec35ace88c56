/**
 * The fairness scenarios (bench/deliver/fairness) on a clock that only work and waiting advance: the commit, the deferred writer
 * and a deliverer as production builds them. Each statement and each attempt takes a fixed time, for every watcher alike.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Address } from '../../src/core/hex.ts';
import { createWake, type LoopOptions, runLoop, type Step } from '../../src/core/loop.ts';
import { createDeliverer, HEARTBEAT_MS } from '../../src/delivery/deliver.ts';
import type { Send } from '../../src/delivery/send.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import { createDeferredWriter } from '../../src/ingest/deferred-writer.ts';
import { sql } from '../../src/store/db/sql.ts';
import { WORKER_LOCK_SPACE } from '../../src/store/delivery/workers.ts';
import { addressOf, headerOf, mine, transferOf, watchAddress } from '../kit/chain-story.ts';
import { createTestClock, type TestClock } from '../kit/clock.ts';
import { emptyDatabase } from '../kit/empty-tables.ts';
import { bugs } from './bugs.ts';
import { createRandom } from './random.ts';
import { createScheduler, type Scheduler } from './scheduler.ts';
import { createSeat, createSessions, type Sessions } from './seat.ts';
import type { Stage } from './world.ts';

/** hangs: the hosts never answer. turns: they answer until the attack begins. answers: always, within a millisecond. */
export type Attack = {
  watchers: number;
  hosts: number;
  /** Watched addresses on the busy address, of all watchers together. */
  records: number;
  manner: 'hangs' | 'turns' | 'answers';
  /** Whether there is a second worker that is stopped (SIGSTOP): alive, but without progress. */
  hasStoppedWorker?: boolean;
};

/** Virtual milliseconds from the stored row to the POST. */
export type Told = {
  quiet: number[];
  attacked: number[];
  newcomers: number[];
  /** Most attempts at once. */
  openMax: number;
  /** Most lanes that were leased beyond two for each attempt and eight for each watcher. */
  surplusMax: number;
};

/** Ten connections whose statements take 2.5 ms, and a thread that needs 0.21 ms for an attempt. */
const STATEMENT_MS = 0.25;
const BEGIN_MS = 0.21;
const HEALTHY_ANSWER_MS = { min: 5, max: 20 };
const HOSTILE_ANSWER_MS = { hangs: 20, turns: 20, answers: 1 };
/** The timeout of an attempt. */
const TIMEOUT_MS = 10_000;
const EVERY_MS = 3_000;
const BLOCKS = { quiet: 6, friendly: 2, attack: 7 };
const HEALTHY = Array.from({ length: 20 }, (_, index) => index + 1);
/** New watchers, by the block of the attack after which they register their first address. */
const NEWCOMERS: ReadonlyMap<number, number> = new Map([
  [1, 31],
  [3, 32],
  [5, 33],
]);
const FIRST_HOSTILE = 101;
const BUSY = addressOf(0xb05e);
const WRITER_MS = 50;
const LANES_OF_A_WATCHER = 8;

const addressOfWatcher = (id: number): Address => addressOf(0x1000 + id);

export async function tellAttack(stage: Stage, attack: Attack): Promise<Told> {
  await emptyDatabase(stage.database);
  const clock = createTestClock();
  const receivers = createReceivers(clock, attack);
  const service = startService(stage, clock, receivers);
  const { database } = stage;
  const told: Told = { quiet: [], attacked: [], newcomers: [], openMax: 0, surplusMax: 0 };
  let height = 0;

  const register = (watcherId: number) =>
    watchAddress(database, {
      ...{ watcherId, address: addressOfWatcher(watcherId), url: `https://${watcherId}.example/hook` },
    });

  /** A block that pays these watchers, and the time until the next one. */
  async function passBlock(paid: ReadonlyMap<number, number[]>, isBusy: boolean): Promise<void> {
    height += 1;
    const payees = [...[...paid.keys()].map(addressOfWatcher), ...(isBusy ? [BUSY] : [])];
    const transfers = payees.map((receiver) => transferOf({ receiver }));
    const mined = service.mine(headerOf(height), transfers).then(() => {
      for (const [id, waits] of paid) receivers.expect(addressOfWatcher(id), waits);
    });
    await service.pass(EVERY_MS);
    await mined;
    const [row] = await database.query<{ leased: number }>(
      sql`select count(*) as leased from lane where owner is not null`,
    );
    const watchers = HEALTHY.length + NEWCOMERS.size + attack.watchers;
    const surplus = (row?.leased ?? 0) - 2 * receivers.open() - LANES_OF_A_WATCHER * watchers;
    told.surplusMax = Math.max(told.surplusMax, surplus);
  }

  async function passBlocks(count: number, waits: number[], isBusy: boolean): Promise<void> {
    for (let index = 0; index < count; index += 1)
      await passBlock(new Map(HEALTHY.map((id) => [id, waits])), isBusy);
  }

  for (const id of HEALTHY) await register(id);
  const { watchers, hosts, records, manner } = attack;
  for (let index = 0; index < records; index += 1)
    await watchAddress(database, {
      ...{ watcherId: FIRST_HOSTILE + (index % watchers), address: BUSY },
      url: `https://host-${index % hosts}.example/${index}`,
    });
  if (attack.hasStoppedWorker === true)
    await database.query(sql`select pg_advisory_lock(${WORKER_LOCK_SPACE}, 1)`);
  await passBlocks(BLOCKS.quiet, told.quiet, false);
  if (manner === 'turns') await passBlocks(BLOCKS.friendly, [], true);
  if (manner !== 'answers') receivers.turn();
  let newcomer: number | undefined;
  for (let index = 0; index < BLOCKS.attack; index += 1) {
    const paid = new Map(HEALTHY.map((id) => [id, told.attacked]));
    if (newcomer !== undefined) paid.set(newcomer, told.newcomers);
    await passBlock(paid, true);
    newcomer = NEWCOMERS.get(index);
    if (newcomer !== undefined) await register(newcomer);
  }
  told.openMax = receivers.openMax();
  await service.stop();
  await database.query(sql`select pg_advisory_unlock_all()`);
  return told;
}

type Receivers = ReturnType<typeof createReceivers>;

function createReceivers(clock: TestClock, { manner }: Attack) {
  const random = createRandom(1);
  /** By receiving address: since when a webhook is expected, and the list for its wait. */
  const expected = new Map<string, { sinceMs: number; waits: number[] }>();
  let hangs = false;
  let [open, openMax, owedMs] = [0, 0, 0];
  const noteWait = (one: { sinceMs: number; waits: number[] } | undefined) =>
    one?.waits.push(clock.steadyMs() - one.sinceMs);

  const send: Send = async ({ body }, killed) => {
    const { receiver }: { receiver: string } = JSON.parse(body);
    const isHostile = receiver === BUSY;
    const isHung = isHostile && hangs;
    const startedMs = clock.steadyMs();
    owedMs += BEGIN_MS;
    open += 1;
    openMax = Math.max(openMax, open);
    noteWait(expected.get(receiver));
    expected.delete(receiver);
    const { min, max } = HEALTHY_ANSWER_MS;
    const answerMs = isHostile ? HOSTILE_ANSWER_MS[manner] : random.between(min, max);
    await clock.wait(isHung ? TIMEOUT_MS : answerMs, killed);
    open -= 1;
    return {
      outcome: isHung ? 'timeout' : 'success',
      status: isHung ? undefined : 200,
      durationMs: clock.steadyMs() - startedMs,
      requestCount: 1,
      mayHaveArrived: true,
      responseText: undefined,
    };
  };

  return {
    send,
    /** The hosts stop answering. */
    turn() {
      hangs = true;
    },
    /** Records that a row for this address was stored. An earlier row that has not been sent counts with its age. */
    expect(address: Address, waits: number[]) {
      noteWait(expected.get(address));
      expected.set(address, { sinceMs: clock.steadyMs(), waits });
    },
    open: () => open,
    openMax: () => openMax,
    /** The thread's time for the attempts that have begun since the last call. */
    takeOwedMs() {
      const ms = owedMs;
      owedMs = 0;
      return ms;
    },
  };
}

/** The parts of a service that deliver, which take turns at the database. */
function startService({ database, log, metrics }: Stage, clock: TestClock, receivers: Receivers) {
  const scheduler = createScheduler();
  const sessions = createSessions(database);
  const seatOf = (name: string) => takeSeat(name, { database, scheduler, sessions });
  const stopping = new AbortController();
  const died = Promise.withResolvers<never>();
  const delivery = seatOf('delivery');
  const deliverer = createDeliverer({
    ...{ clock, log, metrics, database: delivery, settling: seatOf('settling'), session: delivery.session },
    ...{ keyRing: deriveKeyRing(Buffer.alloc(32)), nativeSymbol: 'ETH', retryMinutes: [1, 3, 10] },
    send: receivers.send,
  });
  const follower = seatOf('follower');
  const deferredWake = createWake(clock);
  const writeDeferred = createDeferredWriter({
    ...{ database: seatOf('writer'), clock, metrics, confirmations: 0 },
  });
  const write: Step = async (signal) => {
    const outcome = await writeDeferred(signal);
    if (outcome === 'worked') deliverer.ring('*');
    return outcome;
  };
  const run = (name: string, step: Step, rest: Pick<LoopOptions, 'idleMs' | 'wake'>) =>
    runLoop(step, {
      ...{ name, clock, signal: stopping.signal, retryMsMax: HEARTBEAT_MS, ...rest },
      onFault: died.reject,
    });
  const loops = Promise.all([
    run('delivery', deliverer.step, { idleMs: deliverer.idleMs, wake: deliverer.wake }),
    run('delivery heartbeat', deliverer.heartbeat, { idleMs: () => HEARTBEAT_MS }),
    run('deferred notifications', write, { idleMs: () => WRITER_MS, wake: deferredWake }),
  ]);
  let hasEnded = false;
  const end = loops.then(() => {
    hasEnded = true;
  });
  for (const part of [end, deliverer.failed]) part.catch(died.reject);
  died.promise.catch(() => {});

  /** Everything that can continue does, one statement after the other. Time passes when nothing can. */
  async function pass(ms: number, isOver = () => false): Promise<void> {
    const endMs = clock.steadyMs() + ms;
    while (clock.steadyMs() < endMs && !isOver()) {
      // Attempts begin in separate turns of the event loop.
      await nextTurn();
      await nextTurn();
      const [turn] = scheduler.waiting();
      if (turn !== undefined) await scheduler.take(turn);
      clock.advance((turn === undefined ? 1 : STATEMENT_MS) + receivers.takeOwedMs());
    }
    await Promise.race([died.promise, nextTurn()]);
  }

  return {
    pass,
    async mine(...[header, transfers]: [Parameters<typeof mine>[1], Parameters<typeof mine>[2]]) {
      await mine(follower, header, transfers, { now: clock.now() });
      deliverer.ring('*');
      deferredWake.ring();
    },
    async stop() {
      stopping.abort();
      let hasStopped = false;
      const stopped = deliverer.stop().then(() => {
        hasStopped = true;
      });
      await pass(TIMEOUT_MS, () => hasStopped && hasEnded);
      await Promise.all([stopped, end]);
      await sessions.endAll();
    },
  };
}

function takeSeat(
  name: string,
  parts: { database: Stage['database']; scheduler: Scheduler; sessions: Sessions },
) {
  return createSeat({
    ...{ ...parts, actor: { name, isDead: false }, bug: bugs.none() },
    ...{ mishapAt: () => 'none', onRead() {}, onDone: async () => {} },
  });
}
