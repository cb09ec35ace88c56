/**
 * Registrations, commits of blocks, the build of a filter and pruning take turns on real PostgreSQL, statement by statement, in
 * random orders. Planted bugs show that such orders find what goes wrong.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, test } from 'node:test';
import { Fault } from '../../../src/core/fault.ts';
import { type Address, toBytes } from '../../../src/core/hex.ts';
import { lockCommits } from '../../../src/store/blocks/commit-lock.ts';
import type { Database, Tx } from '../../../src/store/db/db.ts';
import { type Sql, sql } from '../../../src/store/db/sql.ts';
import type { AddressFilter } from '../../../src/store/matching/address-filter.ts';
import { listMatches } from '../../../src/store/matching/matching.ts';
import { noteChanges } from '../../../src/store/watchers/note-changes.ts';
import { addRecord, insertRecord, testFilter } from '../../kit/address-filter.ts';
import { addressOf, headerOf, transferOf } from '../../kit/chain-story.ts';
import { citusUrl } from '../../kit/citus.ts';
import { createTestDatabase, type TestDatabase } from '../../kit/database.ts';
import { emptyDatabase } from '../../kit/empty-tables.ts';
import { sampleOf } from '../../kit/sample.ts';
import { waitUntil } from '../../kit/wait.ts';
import { createRandom, type Random } from '../../sim/random.ts';

const STORIES = 48;
/** A planted bug must show within this many stories. */
const BUG_STORIES_MAX = 200;
/** With the processes and the watch on locks, fewer than the connections of a command. */
const REGISTRARS = 3;
const REGISTRATIONS = 3;
const PROCESSES = 2;
const BLOCKS = 4;
const FILTER_STEPS = 20;
/** Records from before the story, so that the build takes several pages. */
const FIRST_RECORDS = 8;
const PAGE = 3;
const ROLLBACK_CHANCE = 0.2;

/** `isWhileBuilding`: it shows only if a registration is open while the filter is built, so that stories have more of that. */
type Bug = { rewrite?(text: string): string; isReadBeforeLock?: true; isWhileBuilding?: true };

const bugs: Record<string, Bug> = {
  'the highest transaction takes the place of the snapshot': {
    rewrite: (text) =>
      text.replace(
        /not pg_visible_in_snapshot\(xid, (\$\d+)::pg_snapshot\)/,
        'xid >= pg_snapshot_xmax($1::pg_snapshot)',
      ),
  },
  'changes are read before the commit lock': { isReadBeforeLock: true },
  'changes are pruned as soon as they are visible': {
    rewrite: (text) => text.replace(/not exists \(select from address_filter f where .*\)\)/, 'true'),
  },
  'a filter does not wait for open changes': {
    rewrite: (text) => text.replace('lock table watched_address in share mode', 'select'),
    isWhileBuilding: true,
  },
};

let place: TestDatabase;
let database: Database;

before(async () => {
  place = await createTestDatabase('postgres');
  database = await place.open();
});
after(() => place[Symbol.asyncDispose]());

/** The turns look at the locks of one server. */
const onOneServer = { skip: citusUrl() === undefined ? false : 'locks of one server' };

test(
  'no order of registrations, commits, build and pruning hides a watched address from a block',
  onOneServer,
  async () => {
    let filtered = 0;
    const seeds = sampleOf(Array.from({ length: STORIES }, (_, index) => index + 1));
    for (const seed of seeds) {
      const story = await tell(seed, {});
      assert.deepEqual(story.missed, [], `seed ${seed}`);
      filtered += story.filtered;
    }
    assert.ok(filtered > seeds.length, `only ${filtered} blocks used a filter`);
  },
);

for (const [name, bug] of sampleOf(Object.entries(bugs)))
  test(`some order shows that an address is missed if ${name}`, onOneServer, async () => {
    for (let seed = 1; seed <= BUG_STORIES_MAX; seed += 1)
      if ((await tell(seed, bug)).missed.length > 0) return;
    assert.fail(`not found in ${BUG_STORIES_MAX} stories`);
  });

type Story = {
  random: Random;
  bug: Bug;
  turns: Turns;
  /** Addresses whose registration has been answered. */
  watched: Set<Address>;
  missed: Address[];
  /** Blocks that used a filter. */
  filtered: number;
};

/** Runs one story. Every process and client is an actor that does one statement per turn. */
async function tell(seed: number, bug: Bug): Promise<Story> {
  await emptyDatabase(database);
  const random = createRandom(seed);
  const story: Story = { random, bug, turns: createTurns(), watched: new Set(), missed: [], filtered: 0 };
  for (let index = 0; index < FIRST_RECORDS; index += 1) {
    await addRecord(database, addressOf(0x100 * index));
    story.watched.add(addressOf(0x100 * index));
  }
  let leader = 0;
  const processes = Array.from({ length: PROCESSES }, (_, number) =>
    startProcess(story, () => leader === number),
  );
  // In most stories a filter is ready when the others begin.
  if (random.chance(0.8) && bug.isWhileBuilding !== true) {
    story.turns.run(() => processes[0]?.build() ?? Promise.resolve());
    await story.turns.take(random);
  }
  if (random.chance(0.3))
    story.turns.run(async () => {
      for (let turns = random.between(0, 30); turns > 0; turns -= 1) await story.turns.next();
      leader = 1;
    });
  for (const { filter, locked } of processes) {
    story.turns.run(() => tendFilter(story, filter));
    story.turns.run(() => commitBlocks(story, filter, locked));
  }
  for (let number = 0; number < REGISTRARS; number += 1) story.turns.run(() => register(story, number));
  await story.turns.take(random);
  return story;
}

/** `locked` tells which addresses were watched when the process last got the commit lock. */
function startProcess(
  { bug, turns, watched }: Story,
  leads: () => boolean,
): { filter: AddressFilter; build(): Promise<void>; locked(): readonly Address[] } {
  const { rewrite = (text) => text } = bug;
  let locked: readonly Address[] = [];
  const rewritten = ({ text, values }: Sql): Sql => ({ text: rewrite(text), values });
  const seat: Database = {
    ...database,
    async query<Row>(statement: Sql) {
      await turns.next();
      return database.query<Row>(rewritten(statement));
    },
    transaction: (work) =>
      database.transaction(async (tx) => {
        const inTurns: Tx = {
          kind: 'transaction',
          async query<Row>(statement: Sql) {
            const rows = await tx.query<Row>(rewritten(statement));
            if (statement.text.includes('pg_advisory_xact_lock')) locked = [...watched];
            await turns.next();
            return rows;
          },
        };
        return work(inTurns);
      }),
  };
  const filter = testFilter(seat, { leads, pageSize: PAGE });
  return {
    filter,
    async build() {
      while (!filter.isReady()) await filter.step();
    },
    locked: () => locked,
  };
}

async function tendFilter({ turns }: Story, filter: AddressFilter): Promise<void> {
  for (let steps = 0; steps < FILTER_STEPS; steps += 1) {
    await turns.next();
    await filter.step().catch(unlessFault);
  }
}

/** Blocks with a transfer to every address of the story. A block that fails is repeated. */
async function commitBlocks(
  story: Story,
  filter: AddressFilter,
  locked: () => readonly Address[],
): Promise<void> {
  const { turns, random, bug } = story;
  const receivers = [
    ...everyAddress(),
    ...Array.from({ length: 20 }, (_, index) => addressOf(0xf000 + index)),
  ];
  const transfers = receivers.map((receiver) => transferOf({ receiver, sender: addressOf(0xdead) }));
  for (let number = 1; number <= BLOCKS; number += 1) {
    await turns.next();
    const isUndone = random.chance(ROLLBACK_CHANCE);
    await filter
      .transaction(async (tx, narrow) => {
        const early = bug.isReadBeforeLock && narrow && (await narrow(tx, receivers));
        await lockCommits(tx);
        const known = early === undefined ? narrow : async () => early;
        const matches = await listMatches(tx, [{ header: headerOf(number), transfers }], known);
        if (narrow !== undefined) story.filtered += 1;
        const found = new Set(matches.map(({ transfer }) => transfer.receiver));
        // An address that a record has given up since then may be found or not.
        const due = locked().filter((address) => story.watched.has(address));
        story.missed.push(...due.filter((address) => !found.has(address)));
        if (isUndone) throw new Fault('unavailable', 'the block fails');
      })
      .catch(unlessFault);
  }
}

/** A client that creates records and gives them other addresses. */
async function register({ bug, random, turns, watched }: Story, number: number): Promise<void> {
  let record: { id: string; address: Address } | undefined;
  for (let count = 0; count < REGISTRATIONS; count += 1) {
    const address = addressOf(addressNumber(number, count));
    const former = random.chance(0.5) ? record : undefined;
    const isUndone = random.chance(ROLLBACK_CHANCE);
    const id = former?.id ?? randomUUID();
    await turns.next();
    if (former !== undefined) watched.delete(former.address);
    await database
      .transaction(async (tx) => {
        const pause = () => turns.next();
        if (former === undefined) await insertRecord(tx, address, { id, pause });
        else {
          await tx.query(sql`update watched_address set address = ${toBytes(address)} where id = ${id}`);
          await pause();
          const [from, to] = [former.address, address].map((one) => ({ laneId: 1, address: one }));
          await noteChanges(tx, 1, [{ from, to }]);
        }
        for (let left = bug.isWhileBuilding === true ? 20 : 1; left > 0; left -= 1) await turns.next();
        if (isUndone) throw new Fault('unavailable', 'the client gives up');
      })
      .then(
        () => {
          watched.add(address);
          record = { id, address };
        },
        (error: unknown) => {
          unlessFault(error);
          if (former !== undefined) watched.add(former.address);
        },
      );
  }
}

const addressNumber = (registrar: number, count: number) =>
  0x100 * (2 * registrar + count) + 0x10 * registrar + 1;

function everyAddress(): Address[] {
  const first = Array.from({ length: FIRST_RECORDS }, (_, index) => addressOf(0x100 * index));
  const registered = Array.from({ length: REGISTRARS * REGISTRATIONS }, (_, index) =>
    addressOf(addressNumber(Math.floor(index / REGISTRATIONS), index % REGISTRATIONS)),
  );
  return [...first, ...registered];
}

function unlessFault(error: unknown): void {
  if (!(error instanceof Fault)) throw error;
}

type Turns = ReturnType<typeof createTurns>;

/** Gives actors their turns, one at a time. The turn of an actor that waits for a lock ends early. */
function createTurns() {
  const waiting: (() => void)[] = [];
  let running = 0;
  let resting = Promise.withResolvers<void>();
  let failure: { error: unknown } | undefined;

  async function areBlocked(): Promise<boolean> {
    const [row] = await database.query<{ count: number }>(sql`
      select count(*) as count from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`);
    return (row?.count ?? 0) >= running;
  }

  function rest(): void {
    running -= 1;
    if (running === 0) resting.resolve();
  }

  /** Resolves when every actor waits for its turn or for a lock. */
  async function atRest(): Promise<void> {
    if (running === 0) return;
    resting = Promise.withResolvers();
    let isOver = false;
    const isBlocked = async () => isOver || (waiting.length > 0 && (await areBlocked()));
    await Promise.race([resting.promise, waitUntil(isBlocked, { pollMs: 5 })]);
    isOver = true;
  }

  return {
    /** Waits for the actor's next turn. */
    next(): Promise<void> {
      rest();
      return new Promise((resolve) => waiting.push(resolve));
    },
    /** Starts an actor. */
    run(actor: () => Promise<void>): void {
      running += 1;
      actor()
        .catch((error: unknown) => {
          failure ??= { error };
        })
        .finally(rest);
    },
    /** Takes turns until all actors are done. */
    async take(random: Random): Promise<void> {
      for (;;) {
        await atRest();
        if (failure !== undefined) throw failure.error;
        if (waiting.length === 0) return;
        const [resume] = waiting.splice(random.between(0, waiting.length - 1), 1);
        running += 1;
        resume?.();
      }
    },
  };
}
