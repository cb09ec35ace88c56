/**
 * `chainbell watchers list | show | suspend | resume | slices | delete`: manages the tenants of a deployment.
 */
import { once } from 'node:events';
import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';
import type { showWatcher, toWatcherJson } from '../api/admin/watchers.ts';
import { steadyFrom, systemClock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import { counted } from '../core/plural.ts';
import { shellWord, shownText } from '../core/terminal-text.ts';
import { SLICES_MAX } from '../domain/shard.ts';
import type { Database } from '../store/db/db.ts';
import { createDeliveryCount } from '../store/delivery/count-deliveries.ts';
import { beginRemoval } from '../store/watchers/watcher-removal.ts';
import {
  COUNT_MAX,
  countBelongings,
  findWatcher,
  listWatchers,
  raiseSlices,
  resumeWatcher,
  suspendWatcher,
  type Watcher,
} from '../store/watchers/watchers.ts';
import { exitCodes } from './exit.ts';
import { requireWatcherId, unknownWatcher } from './find-watcher.ts';
import { unlessInterrupted } from './interrupt.ts';
import { pagesOf } from './pages.ts';
import { addStoreCommand, type Flags, withStore, writeJson } from './secret-store.ts';
import { parseSlices } from './slices.ts';
import { table } from './table.ts';

/** Watchers that one statement reads. The command prints all pages. */
const PAGE_WATCHERS = 1_000;

const importApi = () => import('../api/admin/watchers.ts');

export function addWatchersCommands(program: Command): void {
  const watchers = program
    .command('watchers')
    .description('list, show, suspend, resume, slice and delete watchers');
  const add = (name: string, description: string) => addStoreCommand(watchers, name, description);
  const addFor = (name: string, description: string) =>
    add(name, description).argument(
      '<watcher>',
      'name of the watcher, or its id if no watcher has that name',
    );

  add('list', 'list all watchers with their state and number of valid keys').action((flags: Flags) =>
    withStore(flags, ({ database }, now) => list(flags, database, now)),
  );
  addFor(
    'show',
    'show the watched addresses, keys, queue and receiver origins of a watcher, or what is left of one that is being deleted',
  ).action((watcher: string, flags: Flags) =>
    withStore(flags, async ({ database }, now) => {
      const { showWatcher } = await importApi();
      const shown = await showWatcher(database, await requireWatcherId(database, watcher), now);
      if (shown === undefined) throw unknownWatcher(watcher);
      if (flags.json === true) writeJson(shown);
      else process.stdout.write(describe(shown, now));
    }),
  );
  addFor('suspend', "refuse a watcher's keys and send it nothing; its notifications wait").action(
    (watcher: string, flags: Flags) =>
      withStore(flags, async ({ database }, now) => {
        const id = await requireWatcherId(database, watcher);
        if (!(await suspendWatcher(database, id, now))) throw unknownWatcher(watcher);
        await report(flags, database, { id, now }, ({ name, deletingAt }) =>
          deletingAt === undefined
            ? [
                `${shownText(name)} is suspended: its keys are refused, its notifications wait, and sending stops within 5 s`,
                `to resume: chainbell watchers resume ${shellWord(watcher)}`,
              ]
            : [
                `${shownText(name)} is being deleted: nothing is sent, and it cannot be resumed`,
                `to finish deleting it: chainbell watchers delete ${shellWord(watcher)}`,
              ],
        );
      }),
  );
  addFor('resume', 'end a suspension; waiting notifications go out').action((watcher: string, flags: Flags) =>
    withStore(flags, async ({ database }, now) => {
      const id = await requireWatcherId(database, watcher);
      const { requireResumed } = await importApi();
      requireResumed(await resumeWatcher(database, id));
      await report(flags, database, { id, now }, ({ name }) => [`${shownText(name)} is active`]);
    }),
  );
  addSlices(addFor('slices', 'raise the number of slices among which new watched addresses are spread'));
  addFor('delete', 'delete a watcher and all its data; services may keep running')
    .option('--yes', 'do not ask for confirmation')
    .action((watcher: string, flags: DeleteFlags) =>
      unlessInterrupted((signal) =>
        withStore(flags, ({ database }, now, { retention: { attemptsMs } }) =>
          remove(flags, { database, watcher, now, signal, attemptsMs }),
        ),
      ),
    );
}

function addSlices(command: Command): void {
  command
    .argument('<number>', `from the present number to ${SLICES_MAX}; it can't be lowered`, parseSlices)
    .action((watcher: string, slices: number, flags: Flags) =>
      withStore(flags, async ({ database }, now) => {
        const id = await requireWatcherId(database, watcher);
        const { requireRaised } = await importApi();
        requireRaised(await raiseSlices(database, id, slices));
        await report(flags, database, { id, now }, ({ name }) => [
          `${shownText(name)} has ${counted(slices, 'slice')}; existing watched addresses stay where they are`,
        ]);
      }),
    );
}

type DeleteFlags = Flags & { yes?: boolean };

async function list(flags: Flags, database: Database, now: Date): Promise<void> {
  const { toWatcherJson } = await importApi();
  const limit = PAGE_WATCHERS;
  const pages = pagesOf<Watcher>(limit, (after) => listWatchers(database, { after: after?.id, limit, now }));
  const watchers = (await Array.fromAsync(pages)).flat().map(toWatcherJson);
  if (flags.json === true) {
    writeJson(watchers);
    return;
  }
  const rows = watchers.map((one) => [
    ...[String(one.id), one.created_at, stateOf(one), String(one.valid_keys), shownText(one.name)],
  ]);
  process.stdout.write(table([['ID', 'CREATED', 'STATE', 'VALID KEYS', 'NAME'], ...rows]));
  if (watchers.length === 0)
    process.stderr.write('no watchers yet. To create one: chainbell keys create --watcher NAME\n');
}

/** Reports the watcher as JSON, or in words on standard error. */
async function report(
  flags: Flags,
  database: Database,
  { id, now }: { id: number; now: Date },
  words: (watcher: Watcher) => string[],
): Promise<void> {
  const { toWatcherJson } = await importApi();
  const watcher = await findWatcher(database, id, now);
  if (watcher === undefined) throw unknownWatcher(String(id));
  if (flags.json === true) writeJson(toWatcherJson(watcher));
  else
    process.stderr.write(
      words(watcher)
        .map((line) => `${line}\n`)
        .join(''),
    );
}

async function remove(
  flags: DeleteFlags,
  {
    database,
    watcher,
    now,
    signal,
    attemptsMs,
  }: { database: Database; watcher: string; now: Date; signal: AbortSignal; attemptsMs: number },
): Promise<void> {
  // The database's clock, because this machine's may be wrong. The statistics of all watchers depend on it.
  const clock = steadyFrom({ ...systemClock(), now: () => now });
  const { removeWatcher, toLeftJson } = await importApi();
  const id = await requireWatcherId(database, watcher);
  const counts = toLeftJson(await countBelongings(database, id));
  const name = shownText((await findWatcher(database, id, now))?.name ?? watcher);
  const [records, notifications] = [
    countedUpTo(counts.records, 'watched address', counts),
    countedUpTo(counts.notifications, 'notification', counts),
  ];
  const what = `${name} with ${records}, ${notifications} and their log`;
  const answer = flags.yes === true ? 'yes' : await askWhether(`Delete ${what}?`, signal);
  if (answer === undefined || signal.aborted) {
    process.stderr.write('\nchainbell: interrupted, so nothing was deleted\n');
    process.exitCode = exitCodes.tryAgain;
    return;
  }
  if (answer === 'no')
    throw new Fault('not_found', `nothing was deleted. To delete ${what} without being asked, give --yes`);
  if (!(await beginRemoval(database, id, clock.now()))) throw unknownWatcher(watcher);
  const { step: count } = createDeliveryCount({ database, clock, attemptsMs });
  const isGone = await removeWatcher(database, id, { clock, count, isOver: () => signal.aborted });
  if (flags.json === true) writeJson({ deleted: isGone });
  if (isGone) {
    if (flags.json !== true) process.stderr.write(`${name} is deleted\n`);
    return;
  }
  process.stderr.write(`interrupted: ${name} stays suspended. To delete the rest, run the command again\n`);
  process.exitCode = exitCodes.tryAgain;
}

/** Asks on a terminal; without one the answer is no. Undefined if a signal, Ctrl-C or Ctrl-D comes instead of an answer. */
async function askWhether(question: string, signal: AbortSignal): Promise<'yes' | 'no' | undefined> {
  if (!process.stdin.isTTY) return 'no';
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  const ended = once(lines, 'close').then(() => undefined);
  try {
    const answer = await Promise.race([lines.question(`${question} [y/N] `, { signal }), ended]);
    if (answer === undefined) return undefined;
    return /^y(es)?$/i.test(answer.trim()) ? 'yes' : 'no';
  } catch (error) {
    if (error instanceof Error && error.name === 'AbortError') return undefined;
    throw error;
  } finally {
    lines.close();
  }
}

const stateOf = ({ state, suspended_at: since }: ReturnType<typeof toWatcherJson>) =>
  state === 'active' ? state : `${state} since ${since}`;

const countedUpTo = (count: number, noun: string, counts: { is_complete: boolean }): string =>
  count === 1
    ? counted(count, noun)
    : `${shownCount(count, counts)} ${noun}${noun.endsWith('s') ? 'es' : 's'}`;

/** A count that stopped at its limit is shown as `100,000+`. */
const shownCount = (count: number, { is_complete: isComplete }: { is_complete: boolean }): string =>
  isComplete || count < COUNT_MAX ? String(count) : `${COUNT_MAX.toLocaleString('en-US')}+`;

function describe(shown: NonNullable<Awaited<ReturnType<typeof showWatcher>>>, now: Date): string {
  const { queue, counts } = shown;
  const oldest = queue.oldest_due_at === null ? '' : `, the oldest since ${queue.oldest_due_at}`;
  const ofQueue = (count: number) => shownCount(count, queue);
  const stored = (
    [
      [counts.records, 'watched address'],
      [counts.notifications, 'notification'],
      [counts.attempts, 'attempt'],
      [counts.answers, 'stored response'],
      [counts.signing_secrets, 'signing secret'],
      [counts.origins, 'origin'],
    ] as const
  ).map(([count, noun]) => countedUpTo(count, noun, counts));
  const lines = [
    `watcher  ${shown.id} ${shownText(shown.name)}, created ${shown.created_at}`,
    `state    ${stateOf(shown)}`,
    ...(shown.slices === 1 ? [] : [`slices   ${shown.slices}`]),
    `queue    ${ofQueue(queue.waiting)} waiting, ${ofQueue(queue.due)} due${oldest}, ${ofQueue(queue.held)} held`,
    `${shown.state === 'deleting' ? 'left     ' : 'stored   '}${stored.join(', ')}`,
    ...shown.keys.map(
      ({ id, created_at: created, revoked_at: revoked }) =>
        `key      ${id} of ${created}${revoked === null ? '' : `, ${Date.parse(revoked) > now.getTime() ? 'valid until' : 'ended'} ${revoked}`}`,
    ),
    ...shown.origins.map(
      (one) =>
        `origin   ${one.origin}${one.at_work ? ', at work' : ''}${one.next_due_at === null || shown.state !== 'active' ? '' : `, next due ${one.next_due_at}`}`,
    ),
  ];
  return lines.map((line) => `${line}\n`).join('');
}
