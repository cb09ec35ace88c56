/**
 * `chainbell receivers`: lists the receivers of webhooks and those that are failing.
 */
import { type Command, Option } from 'commander';
import type { QueuedReceiver } from '../api/notifications/receivers.ts';
import { systemClock } from '../core/clock.ts';
import { counted } from '../core/plural.ts';
import { shownText } from '../core/terminal-text.ts';
import { readTime } from '../store/db/database-time.ts';
import type { Database, Db } from '../store/db/db.ts';
import { findLateWatchers } from '../store/delivery/lateness.ts';
import { listReceivers, PENDING_MAX, type Receiver } from '../store/delivery/receivers.ts';
import type { SecretStore } from '../store/watchers/signing-secrets.ts';
import { requireWatcherId } from './find-watcher.ts';
import { untilInterrupted } from './interrupt.ts';
import { pagesOf } from './pages.ts';
import { addStoreCommand, type Flags as StoreFlags, withStore, writeJson } from './secret-store.ts';
import { table } from './table.ts';

type Flags = StoreFlags & { failing?: boolean; late?: boolean; watcher?: string; watch?: boolean };

/** Receivers that one statement reads. The command prints all pages. */
const PAGE_RECEIVERS = 1_000;
/** A list of late watchers shows the latest ones, and says so. */
const LATE_LISTED_MAX = 1_000;
const WATCH_MS = 2_000;
/** Clears a terminal and starts at its top. Source: ECMA-48, ED and CUP. */
const CLEAR = '\u001B[2J\u001B[H';

export function addReceiversCommand(program: Command): void {
  addStoreCommand(program, 'receivers', 'list the receivers of webhooks, and which of them are failing')
    .option('--failing', 'list only failing receivers')
    .addOption(
      new Option(
        '--late',
        'list the watchers whose webhooks have been due for more than a minute instead',
      ).conflicts(['failing', 'watcher']),
    )
    .option('--watcher <watcher>', 'list only receivers of this watcher (name or id)')
    .option('--watch', `refresh the list every ${WATCH_MS / 1_000} s until you press Ctrl-C`)
    .addHelpText('after', '\nExample:\n  $ npm run --silent chainbell -- receivers --failing')
    .action((flags: Flags) =>
      untilInterrupted((signal) => withStore(flags, (store) => run(store, flags, signal))),
    );
}

async function run({ database }: SecretStore, flags: Flags, signal: AbortSignal): Promise<void> {
  const clock = systemClock();
  const watcherId = flags.watcher === undefined ? undefined : await requireWatcherId(database, flags.watcher);
  do {
    const show =
      flags.late === true
        ? await readLate(database)
        : await readReceivers(database, { watcherId, failing: flags.failing === true });
    if (flags.json === true) {
      writeJson(show.json);
      if (show.note !== undefined) process.stderr.write(`${show.note}\n`);
    } else {
      if (flags.watch === true && process.stdout.isTTY) process.stdout.write(CLEAR);
      process.stdout.write(show.table);
      process.stderr.write(`${[show.summary, ...(show.note === undefined ? [] : [show.note])].join('; ')}\n`);
    }
    if (flags.watch === true) await clock.wait(WATCH_MS, signal);
  } while (flags.watch === true && !signal.aborted);
}

/** `note` says what the list leaves out. */
type Shown = { json: unknown; table: string; summary: string; note?: string };

async function listAll(
  db: Db,
  which: { watcherId: number | undefined; failing: boolean },
): Promise<QueuedReceiver[]> {
  const { withQueues } = await import('../api/notifications/receivers.ts');
  const receivers: QueuedReceiver[] = [];
  const limit = PAGE_RECEIVERS;
  for await (const page of pagesOf<Receiver>(limit, (after) => listReceivers(db, { ...which, after, limit })))
    receivers.push(...(await withQueues(db, page)));
  return receivers;
}

async function readReceivers(
  db: Db,
  which: { watcherId: number | undefined; failing: boolean },
): Promise<Shown> {
  const { watcherReceiverJson } = await import('../api/admin/deployment.ts');
  const queued = await listAll(db, which);
  const receivers = queued.map(({ receiver }) => receiver);
  return {
    json: queued.map((one) => watcherReceiverJson(one, undefined)),
    table: table([
      ['WATCHER', 'RECEIVER', 'FAILING SINCE', 'ATTEMPTS', 'LAST', 'PENDING', 'OLDEST', 'NEXT ATTEMPT'],
      ...receivers.map((one) => [...[shownText(one.watcherName), one.origin], ...cellsOf(one)]),
    ]),
    summary: summaryOf(receivers, which.failing),
  };
}

function summaryOf(receivers: readonly Receiver[], onlyFailing: boolean): string {
  const count = receivers.filter(({ failure }) => failure !== undefined).length;
  const verb = count === 1 ? 'is failing' : 'are failing';
  if (onlyFailing) return count === 0 ? 'no receiver is failing' : `${counted(count, 'receiver')} ${verb}`;
  if (receivers.length === 0) return 'no receivers, because no address is watched yet';
  const suspended = receivers.filter(({ isSuspended }) => isSuspended).length;
  const rest = suspended === 0 ? '' : `, ${suspended} of suspended watchers`;
  return count === 0
    ? `none of ${counted(receivers.length, 'receiver')} is failing${rest}`
    : `${count} of ${counted(receivers.length, 'receiver')} ${verb}${rest}`;
}

function cellsOf({ isSuspended, failure }: Receiver): string[] {
  if (failure === undefined) return [isSuspended ? 'suspended' : 'no', '', '', '', '', ''];
  const { since, attempts, lastOutcome, lastStatus, pending, oldestPendingAt, nextAttemptAt } = failure;
  return [
    ...[atSecond(since), String(attempts)],
    lastStatus === undefined ? (lastOutcome ?? 'unknown') : `HTTP ${lastStatus}`,
    pending > PENDING_MAX ? `over ${PENDING_MAX}` : String(pending),
    ...[atSecond(oldestPendingAt), atSecond(nextAttemptAt)],
  ];
}

async function readLate(db: Database): Promise<Shown> {
  const { LATE_MS } = await import('../app/deployment-status.ts');
  const now = await readTime(db);
  const { watchers, latest } = await findLateWatchers(db, now, {
    lateMs: LATE_MS,
    limit: LATE_LISTED_MAX,
  });
  const late = latest.map(({ oldestDueAt, ...one }) => ({
    ...one,
    oldestDueAt: oldestDueAt.toISOString(),
    seconds: Math.round((now.getTime() - oldestDueAt.getTime()) / 1_000),
  }));
  return {
    json: late.map(({ watcherId, watcherName, oldestDueAt, seconds }) => {
      return { watcher_id: watcherId, watcher: watcherName, oldest_due_at: oldestDueAt, seconds };
    }),
    table: table([
      ['WATCHER', 'OLDEST DUE', 'LATE BY'],
      ...late.map(({ watcherName, oldestDueAt, seconds }) => [
        ...[shownText(watcherName), oldestDueAt, `${seconds} s`],
      ]),
    ]),
    summary:
      watchers === 0
        ? 'no watcher is late'
        : `${counted(watchers, 'watcher')} ${watchers === 1 ? 'is' : 'are'} late`,
    ...(watchers > late.length && { note: `only the ${late.length} latest of ${watchers} are listed` }),
  };
}

const atSecond = (time: Date) => `${time.toISOString().slice(0, 19)}Z`;
