/**
 * Routes for the delivery of one watched address: its statistics, and a test webhook.
 */
import { Type } from 'typebox';
import { startAbort } from '../../core/abort.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import { recordStatistics } from '../../store/delivery/record-statistics.ts';
import { findWatchedAddress, type WatchedAddress } from '../../store/watchers/watched.ts';
import { findWatcher } from '../../store/watchers/watchers.ts';
import type { Api, ApiOptions, TestResult } from '../context.ts';
import { accountOf, createShardGate } from '../http/auth.ts';
import { answerOf, textOrNull } from './log-json.ts';
import { found, PATH, parseId } from './watched-addresses.ts';

/** The 10 s of an attempt, and as long to wait for a slot of the receiver. */
const TEST_MS_MAX = 20_000;
/** For each watcher in each process: enough for a person who tests a receiver. */
const TESTS_PER_MINUTE_MAX = 10;
const SUSPENDED = 'The watcher is suspended, so nothing is sent to its receivers. Resume it to send a test';

const Params = Type.Object({ id: Type.String() });
const Statistics = Type.Object({
  held: Type.Integer(),
  waiting: Type.Integer(),
  processed: Type.Integer(),
  withdrawn: Type.Integer(),
  cancelled: Type.Integer(),
  is_complete: Type.Boolean(),
  oldest_due_at: textOrNull,
  last_success_at: textOrNull,
  last_failure_at: textOrNull,
});
const Test = Type.Object({
  outcome: Type.String(),
  status: Type.Union([Type.Integer(), Type.Null()]),
  duration_ms: Type.Integer(),
  response: textOrNull,
  request: Type.Object(
    {
      method: Type.Literal('POST'),
      url: Type.String(),
      headers: Type.Record(Type.String(), Type.String()),
      body: Type.String({ description: 'The exact text, only with `[redacted]` in the place of `api_key`.' }),
    },
    { description: 'The request that was sent, without its secrets.' },
  ),
});

const operations = {
  statistics: {
    summary: 'Show delivery statistics of a watched address',
    example: {
      success: true,
      data: {
        ...{ held: 0, waiting: 2, processed: 40, withdrawn: 0, cancelled: 0, is_complete: true },
        oldest_due_at: '2026-01-31T12:00:00.000Z',
        last_success_at: '2026-01-31T11:58:00.000Z',
        last_failure_at: null,
      },
    },
  },
  test: {
    summary: 'Send a test webhook for a watched address',
    description:
      'Sends it at once with the header `webhook-test: true`. The same rules for URLs apply as for all webhooks.',
    example: {
      success: true,
      data: {
        ...{ outcome: 'success', status: 204, duration_ms: 38, response: '' },
        request: {
          ...{ method: 'POST', url: 'https://hooks.acme.example/deposits' },
          headers: { 'content-type': 'application/json', 'webhook-id': '0', 'webhook-test': 'true' },
          body: '{"id":0, …}',
        },
      },
    },
    errors: {
      409: `${SUSPENDED}.`,
      429: `More than ${TESTS_PER_MINUTE_MAX} test webhooks in a minute.`,
    },
  },
};

export function addRecordDeliveryRoutes(api: Api, options: ApiOptions): void {
  const { database, clock } = options;
  const { onRequest, watcherOf } = createShardGate(options);
  const mayTest = createAllowance(clock);
  const closing = new AbortController();
  api.addHook('preClose', async () => closing.abort());

  api.get(
    `${PATH}/:id/stats`,
    {
      onRequest,
      schema: { params: Params, response: answerOf(Statistics) },
      config: { operation: operations.statistics },
    },
    async (request) => {
      const watcherId = watcherOf(request);
      const { id } = await getRecord(watcherId, request.params.id);
      const { counts, ...rest } = await recordStatistics(database, watcherId, id, clock.now());
      return {
        success: true as const,
        data: {
          ...counts,
          is_complete: rest.isComplete,
          oldest_due_at: rest.oldestDueAt?.toISOString() ?? null,
          last_success_at: rest.lastSuccessAt?.toISOString() ?? null,
          last_failure_at: rest.lastFailureAt?.toISOString() ?? null,
        },
      };
    },
  );

  api.post(
    `${PATH}/:id/test`,
    {
      onRequest,
      schema: { params: Params, response: answerOf(Test) },
      config: { operation: operations.test },
    },
    async (request) => {
      const watcherId = watcherOf(request);
      const record = await getRecord(watcherId, request.params.id);
      // Keys of a suspended watcher are refused already, so this is a request of the operator.
      if ((await findWatcher(database, watcherId, clock.now()))?.suspendedAt !== undefined)
        throw new Fault('conflict', SUSPENDED);
      if (!mayTest(accountOf(request)))
        throw new Fault('limited', `At most ${TESTS_PER_MINUTE_MAX} test webhooks a minute`);
      const { outcome, status, durationMs, responseText, request: sent } = await sendWithin(record);
      return {
        success: true as const,
        data: {
          ...{ outcome, status: status ?? null, duration_ms: durationMs, response: responseText ?? null },
          request: { method: 'POST' as const, url: sent.url, headers: sent.headers, body: sent.body },
        },
      };
    },
  );

  async function getRecord(watcherId: number, id: string): Promise<WatchedAddress> {
    return found(await findWatchedAddress(database, watcherId, parseId(id)));
  }

  async function sendWithin(record: WatchedAddress): Promise<TestResult> {
    const limit = startAbort(closing.signal, TEST_MS_MAX);
    try {
      return await options.sendTest(record, limit.signal);
    } catch (error) {
      if (!limit.signal.aborted) throw error;
      throw new Fault('unavailable', 'the test webhook was aborted', { cause: error });
    } finally {
      limit.release();
    }
  }
}

/** Returns whether the account may send one more test webhook. Counts restart each minute. */
function createAllowance(clock: Clock): (account: number) => boolean {
  const counts = new Map<number, number>();
  let minute = 0;
  return (account) => {
    const present = Math.floor(clock.now().getTime() / 60_000);
    if (present !== minute) counts.clear();
    minute = present;
    const count = counts.get(account) ?? 0;
    counts.set(account, count + 1);
    return count < TESTS_PER_MINUTE_MAX;
  };
}
