/**
 * The lock of all transactions that commit or orphan blocks. Those that create notifications also see to it that none gets an id of a
 * commit that the database has lost, after a fail-over to an asynchronous standby or a recovery to a point in time.
 */
import { randomInt } from 'node:crypto';
import { type Database, sqlStateOf, type Tx } from '../db/db.ts';
import { sql } from '../db/sql.ts';
import { TIMELINE } from '../db/timeline.ts';

/** Advisory lock; `pg_locks` shows it. */
const COMMIT_LOCK = 0x6362_0002;
/**
 * How far ids move ahead at least: more than the notifications of the lost commits, of which receivers know the ids. The rest is random, because
 * two servers that are promoted one after the other from the same state must not give out the same ids. 200 fail-overs fit into 31 bits.
 */
const IDS_AHEAD = 1_000_000;
const IDS_AHEAD_MAX = 16_000_000;
/** How far the epochs of free lanes move ahead: more than the leases of a lane that were lost, of which workers may still be running. */
const EPOCHS_AHEAD = 1_000_000;

/** Keeps all other transactions from committing or orphaning blocks until this one ends. */
export async function lockCommits(tx: Tx): Promise<void> {
  await tx.query(sql`select pg_advisory_xact_lock(${COMMIT_LOCK})`);
}

/** Null on a standby, which refuses the statements that follow. */
const timeline = sql`case when not pg_is_in_recovery() then ${TIMELINE} end`;

type Timelines = { noted: string | null; current: string | null };

/**
 * As `lockCommits`, for transactions that create notifications. If the timeline isn't the one noted last, their ids move ahead first: those
 * of lost commits may have been sent, and receivers ignore an id that they have seen. The ids of attempts move too, because a stream goes
 * on after the last one that its client has seen. So do the epochs of the lanes from which rows may have been sent under a lost lease.
 * Returns the id after which new notifications follow, or undefined if they have not moved.
 */
export async function lockForIds(tx: Tx): Promise<number | undefined> {
  return moveIds(tx, await lockAndRead(tx));
}

/** Asks for the timeline only if one is noted, because a server that hides it would refuse the statement. */
async function lockAndRead(tx: Tx): Promise<Timelines> {
  const [row] = await tx.query<Timelines>(sql`
    select c.timeline as noted, case when c.timeline is not null then ${timeline} end as current
    from pg_advisory_xact_lock(${COMMIT_LOCK}) left join chain c on true`);
  return row ?? { noted: null, current: null };
}

async function moveIds(tx: Tx, { noted, current }: Timelines): Promise<number | undefined> {
  if (current === null || current === noted) return undefined;
  // Another process may have noted it while this one waited for the lock.
  const isNew = await tx.query(sql`
    update chain set timeline = ${current} where timeline is distinct from ${current} returning timeline`);
  if (isNew.length === 0) return undefined;
  const ahead = randomInt(IDS_AHEAD, IDS_AHEAD_MAX);
  const [moved] = await tx.query<{ id: number }>(sql`
    select setval('notification_id_seq', n.last_value + ${ahead}) as id, setval('delivery_attempt_id_seq', a.last_value + ${ahead})
    from notification_id_seq n, delivery_attempt_id_seq a`);
  await moveEpochs(tx);
  return moved?.id;
}

/** A lane with an owner needs none: its rows may have been sent in any case. */
async function moveEpochs(tx: Tx): Promise<void> {
  await tx.query(sql`
    with locked as materialized (
      select id from lane where owner is null and next_due is not null order by id for update
    )
    update lane l set epoch = l.epoch + ${EPOCHS_AHEAD} from locked where l.id = locked.id`);
}

/** Not supported, not permitted, or no such function. */
const HIDDEN = new Set(['0A000', '42501', '42883']);

/**
 * Notes the timeline, unless the server hides it, as some hosted ones do. Call it before the first transaction that creates notifications.
 * Returns what `lockForIds` returns, or 'hidden'.
 */
export async function noteTimeline(database: Database): Promise<number | 'hidden' | undefined> {
  // The embedded database has no standby.
  if (database.kind === 'embedded') return undefined;
  let current: string | null;
  try {
    const [row] = await database.query<Pick<Timelines, 'current'>>(sql`select ${timeline} as current`);
    current = row?.current ?? null;
  } catch (error) {
    if (!HIDDEN.has(sqlStateOf(error))) throw error;
    await database.query(sql`update chain set timeline = null where timeline is not null`);
    return 'hidden';
  }
  return database.transaction(async (tx) => {
    const timelines = await lockAndRead(tx);
    if (timelines.noted !== null || current === null) return moveIds(tx, timelines);
    await tx.query(sql`update chain set timeline = ${current} where timeline is null`);
    return undefined;
  });
}
