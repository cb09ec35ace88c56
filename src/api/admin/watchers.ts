/**
 * Operator routes that list, show, suspend, resume, slice and delete watchers. The command line prints the same bodies.
 */
import { type Static, Type } from 'typebox';
import { never } from '../../core/abort.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import { SLICES_MAX } from '../../domain/shard.ts';
import type { Database } from '../../store/db/db.ts';
import { listWatcherKeys } from '../../store/watchers/api-keys.ts';
import { beginRemoval, removeBatch } from '../../store/watchers/watcher-removal.ts';
import {
  type Belongings,
  COUNT_MAX,
  countBelongings,
  findWatcher,
  listOrigins,
  listWatchers,
  ORIGINS_MAX,
  raiseSlices,
  resumeWatcher,
  suspendWatcher,
  type Watcher,
  watcherQueue,
} from '../../store/watchers/watchers.ts';
import type { Api, ApiOptions } from '../context.ts';
import { nextLink } from '../http/paging.ts';
import { parseWhole, querySchema } from '../http/parameters.ts';
import { answerOf, textOrNull } from '../notifications/log-json.ts';
import { pageParameters, readPage } from '../notifications/log-query.ts';

const PATH = '/api/admin/watchers';
/** Keys that `show` lists, newest first. */
const KEYS_MAX = 100;
/** How long one request deletes before it answers what is left. */
const REMOVAL_MS_MAX = 10_000;
/** How often a deletion checks whether attempts under way have ended. */
const SENDING_POLL_MS = 250;
/** How soon to look again whether all attempts are in the statistics. */
const COUNT_POLL_MS = 20;

const counted = { description: `Counted up to ${COUNT_MAX}.` };
const isComplete = Type.Boolean({
  description: `False if a count exceeds ${COUNT_MAX}. A count of ${COUNT_MAX} then means at least that many.`,
});
const Left = Type.Object(
  {
    records: Type.Integer(counted),
    notifications: Type.Integer(counted),
    attempts: Type.Integer(counted),
    answers: Type.Integer({ description: `Stored responses of bulk requests, counted up to ${COUNT_MAX}.` }),
    signing_secrets: Type.Integer(),
    origins: Type.Integer({ description: `Origins of its webhooks, counted up to ${COUNT_MAX}.` }),
    is_complete: isComplete,
  },
  { title: 'WatcherBelongings' },
);
const WatcherJson = Type.Object(
  {
    id: Type.Integer(),
    name: Type.String(),
    state: Type.Enum(['active', 'suspended', 'deleting'], {
      description:
        '`suspended`: keys are refused and notifications wait. `deleting`: the same, until everything is deleted.',
    }),
    valid_keys: Type.Integer(),
    slices: Type.Integer({ description: 'Slices among which its new watched addresses are spread.' }),
    created_at: Type.String(),
    suspended_at: textOrNull,
    deleting_at: textOrNull,
  },
  { title: 'Watcher' },
);
const Shown = Type.Object({
  ...WatcherJson.properties,
  keys: Type.Array(Type.Object({ id: Type.String(), created_at: Type.String(), revoked_at: textOrNull }), {
    description: `The newest ${KEYS_MAX}.`,
  }),
  queue: Type.Object({
    waiting: Type.Integer({
      description: `Notifications that wait for an attempt, counted up to ${COUNT_MAX}.`,
    }),
    due: Type.Integer({
      description: 'Waiting notifications that are due now. Nothing of a suspended watcher is due.',
    }),
    held: Type.Integer({
      description: 'Notifications that wait for confirmations or for an earlier one in strict order.',
    }),
    oldest_due_at: textOrNull,
    is_complete: isComplete,
  }),
  origins: Type.Array(
    Type.Object({
      origin: Type.String(),
      at_work: Type.Boolean({ description: 'A worker is processing its delivery queue.' }),
      next_due_at: textOrNull,
    }),
    { description: `Up to ${ORIGINS_MAX}: first those being processed, then by due time.` },
  ),
  counts: Left,
});
const Slices = Type.Object({
  slices: Type.Integer({
    minimum: 1,
    maximum: SLICES_MAX,
    description: `From the present number to ${SLICES_MAX}. It can't be lowered.`,
  }),
});
const Removed = Type.Object({ deleted: Type.Boolean(), left: Type.Union([Left, Type.Null()]) });

const watcher = {
  id: 7,
  name: 'acme',
  state: 'suspended',
  valid_keys: 1,
  slices: 1,
  created_at: '2026-01-31T12:00:00.000Z',
  suspended_at: '2026-02-01T08:00:00.000Z',
  deleting_at: null,
};
const counts = {
  records: 3,
  notifications: 120,
  attempts: 125,
  answers: 0,
  signing_secrets: 1,
  origins: 1,
  is_complete: true,
};
const shown = {
  ...watcher,
  keys: [{ id: 'k7Qm2x9RtLpA', created_at: '2026-01-31T12:00:00.000Z', revoked_at: null }],
  queue: { waiting: 5, due: 0, held: 0, oldest_due_at: null, is_complete: true },
  origins: [{ origin: 'https://hooks.example.com', at_work: false, next_due_at: '2026-02-01T08:00:01.000Z' }],
  counts,
};
const errors = { 404: 'Watcher not found' };
const operations = {
  list: {
    summary: 'List all watchers by id',
    example: { success: true, data: [watcher] },
    answerHeaders: { link: '`rel="next"` leads to the next page.' },
  },
  show: {
    summary: 'Show a watcher with its keys, queue and origins',
    example: { success: true, data: shown },
    errors,
  },
  suspend: {
    summary: 'Suspend a watcher',
    description:
      'Its keys are refused with 403, its streams end, and sending stops within 5 seconds. Notifications of new transfers are stored and wait with the others. Suspending a suspended watcher changes nothing.',
    example: { success: true, data: watcher },
    errors,
  },
  resume: {
    summary: 'Resume a suspended watcher',
    description: 'The waiting notifications are sent. Resuming an active watcher changes nothing.',
    example: { success: true, data: { ...watcher, state: 'active', suspended_at: null } },
    errors: { ...errors, 409: 'The watcher is being deleted' },
  },
  slice: {
    summary: 'Raise the number of slices of a watcher',
    description:
      'New watched addresses are spread among the slices by their address. Existing ones stay where they are. The number takes effect at once and can never be lowered.',
    bodyExample: { slices: 16 },
    example: { success: true, data: { ...watcher, state: 'active', suspended_at: null, slices: 16 } },
    errors: { ...errors, 409: 'The watcher has more slices, or is being deleted' },
  },
  remove: {
    summary: 'Delete a watcher with everything that belongs to it',
    description:
      'Deletes watched addresses, notifications, the delivery log, keys, signing secrets and stored responses. Sending stops first. One request works for 10 seconds at most, so repeat it until `deleted` is true.',
    example: { success: true, data: { deleted: false, left: counts } },
    errors,
  },
};

export function addAdminWatcherRoutes(api: Api, { database, clock, operator }: ApiOptions): void {
  const params = Type.Object({ id: Type.String() });
  const get = async (id: number) =>
    success(toWatcherJson(found(await findWatcher(database, id, clock.now()))));

  api.get(
    PATH,
    {
      schema: { querystring: querySchema(pageParameters), response: answerOf(Type.Array(WatcherJson)) },
      config: { operation: operations.list },
    },
    async (request, reply) => {
      const { limit, before: after } = readPage(request.query);
      const watchers = await listWatchers(database, { after, limit, now: clock.now() });
      const last = watchers.at(-1);
      if (last !== undefined && watchers.length === limit)
        reply.header('link', nextLink(PATH, { limit, cursor: last.id }));
      return success(watchers.map(toWatcherJson));
    },
  );

  api.get(
    `${PATH}/:id`,
    { schema: { params, response: answerOf(Shown) }, config: { operation: operations.show } },
    async ({ params: { id } }) => success(found(await showWatcher(database, parseId(id), clock.now()))),
  );

  api.post(
    `${PATH}/:id/suspend`,
    { schema: { params, response: answerOf(WatcherJson) }, config: { operation: operations.suspend } },
    async (request) => {
      const id = parseId(request.params.id);
      if (!(await suspendWatcher(database, id, clock.now()))) throw notFound();
      return get(id);
    },
  );

  api.post(
    `${PATH}/:id/resume`,
    { schema: { params, response: answerOf(WatcherJson) }, config: { operation: operations.resume } },
    async (request) => {
      const id = parseId(request.params.id);
      requireResumed(await resumeWatcher(database, id));
      return get(id);
    },
  );

  api.put(
    `${PATH}/:id/slices`,
    {
      schema: { params, body: Slices, response: answerOf(WatcherJson) },
      config: { operation: operations.slice },
    },
    async (request) => {
      const id = parseId(request.params.id);
      requireRaised(await raiseSlices(database, id, request.body.slices));
      return get(id);
    },
  );

  api.delete(
    `${PATH}/:id`,
    { schema: { params, response: answerOf(Removed) }, config: { operation: operations.remove } },
    async (request) => {
      const id = parseId(request.params.id);
      if (!(await beginRemoval(database, id, clock.now()))) throw notFound();
      const untilMs = clock.steadyMs() + REMOVAL_MS_MAX;
      const isOver = () => clock.steadyMs() >= untilMs;
      const isGone = await removeWatcher(database, id, { clock, count: operator.countDeliveries, isOver });
      return success({
        deleted: isGone,
        left: isGone ? null : toLeftJson(await countBelongings(database, id)),
      });
    },
  );
}

/**
 * Deletes in batches until nothing is left or `isOver` returns true. `count` adds the next attempts to the statistics, which keep
 * the watcher's deliveries in the sums of all. Returns whether nothing is left.
 */
export async function removeWatcher(
  database: Database,
  id: number,
  { clock, count, isOver }: { clock: Pick<Clock, 'wait'>; count(): Promise<unknown>; isOver(): boolean },
): Promise<boolean> {
  let counts = 0;
  for (;;) {
    const outcome = await removeBatch(database, id);
    if (outcome === 'gone') return true;
    if (isOver()) return false;
    if (outcome === 'uncounted') {
      if (counts > 0) await clock.wait(COUNT_POLL_MS, never);
      await count();
      counts += 1;
    }
    if (outcome === 'sending') await clock.wait(SENDING_POLL_MS, never);
  }
}

/** Everything about one watcher. Undefined if it does not exist. */
export async function showWatcher(
  database: Database,
  id: number,
  now: Date,
): Promise<Static<typeof Shown> | undefined> {
  const one = await findWatcher(database, id, now);
  if (one === undefined) return undefined;
  const keys = await listWatcherKeys(database, id, KEYS_MAX);
  const { oldestDueAt, ...queue } = await watcherQueue(database, one, now);
  const origins = await listOrigins(database, id);
  return {
    ...toWatcherJson(one),
    keys: keys.map((key) => ({
      id: key.id,
      created_at: key.createdAt.toISOString(),
      revoked_at: key.revokedAt?.toISOString() ?? null,
    })),
    queue: { ...upToMax(queue), oldest_due_at: oldestDueAt?.toISOString() ?? null },
    origins: origins.map(({ origin, isAtWork, nextDueAt }) => ({
      ...{ origin, at_work: isAtWork, next_due_at: nextDueAt?.toISOString() ?? null },
    })),
    counts: toLeftJson(await countBelongings(database, id)),
  };
}

export function toWatcherJson({ suspendedAt, deletingAt, ...one }: Watcher): Static<typeof WatcherJson> {
  const state = deletingAt !== undefined ? 'deleting' : suspendedAt !== undefined ? 'suspended' : 'active';
  return {
    ...{ id: one.id, name: one.name, state, valid_keys: one.validKeyCount, slices: one.slices },
    created_at: one.createdAt.toISOString(),
    suspended_at: suspendedAt?.toISOString() ?? null,
    deleting_at: deletingAt?.toISOString() ?? null,
  };
}

export const toLeftJson = ({ signingSecrets, ...counts }: Belongings): Static<typeof Left> => ({
  ...upToMax(counts),
  signing_secrets: signingSecrets,
});

/** The counts, capped at COUNT_MAX, and whether all of them are exact. */
function upToMax<Counts extends Record<string, number>>(counts: Counts) {
  const entries = Object.entries(counts).map(([name, count]) => [name, Math.min(count, COUNT_MAX)]);
  return {
    ...(Object.fromEntries(entries) as Counts),
    is_complete: Object.values(counts).every((count) => count <= COUNT_MAX),
  };
}

/** @throws Fault `not_found`, or `conflict` if the watcher is being deleted. */
export function requireResumed(outcome: Awaited<ReturnType<typeof resumeWatcher>>): void {
  if (outcome === 'none') throw notFound();
  if (outcome === 'deleting') throw beingDeleted();
}

/** @throws Fault `not_found`, or `conflict` if the watcher has more slices or is being deleted. */
export function requireRaised({ outcome, slices }: Awaited<ReturnType<typeof raiseSlices>>): void {
  if (outcome === 'none') throw notFound();
  if (outcome === 'deleting') throw beingDeleted();
  if (outcome === 'lower')
    throw new Fault(
      'conflict',
      `The watcher has ${slices} slices, and the number can't be lowered. Give ${slices} or more`,
    );
}

const beingDeleted = () =>
  new Fault('conflict', `${operations.resume.errors[409]}. Delete it again to finish that`);

const notFound = () => new Fault('not_found', errors[404]);

function found<T>(value: T | undefined): T {
  if (value === undefined) throw notFound();
  return value;
}

/** @throws Fault `not_found` for a text that can't be an id. */
function parseId(text: string): number {
  return found(parseWhole(text));
}

const success = <T>(data: T) => ({ success: true as const, data });
