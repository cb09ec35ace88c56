/**
 * Delivery as receivers and watchers experience it, with the whole program between a real chain and real receivers.
 */
import assert from 'node:assert/strict';
import { after, before, describe } from 'node:test';
import { endKey } from '../../src/app/issue-keys.ts';
import type { Address, Hash } from '../../src/core/hex.ts';
import { sql } from '../../src/store/db/sql.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import { sampledKinds } from '../kit/each-database.ts';
import { type ReceivedRequest, type Receiver, startReceiver } from '../kit/receiver.ts';
import { sampledTest } from '../kit/sample.ts';
import {
  createWatcher,
  freshAddress,
  startTestService,
  type TestService,
  type Watcher,
} from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const test = sampledTest(import.meta.url, { shares: 2 });

/** 0.12 s, 0.6 s, then always 1.2 s. */
const RETRY_MINUTES = [0.002, 0.01, 0.02];
const MINUTE_MS = 60_000;
/** The delay that a busy machine may add: less than the time between two steps of the schedule. */
const STALL_MS_MAX = 400;
/** A lane with attempts under way looks for due notifications once a second. */
const LATE_MS_MAX = 2_500;

for (const kind of sampledKinds(import.meta.url)) {
  describe(`with the ${kind} database`, () => {
    const own = new AsyncDisposableStack();
    let chain: Chain;
    let receiver: Receiver;
    let other: Receiver;
    /** A URL where nothing listens. */
    let gone: { url: string; port: number };
    let service: TestService;
    let watcher: Watcher;

    before(async () => {
      chain = own.use(await startChain());
      receiver = own.use(await startReceiver());
      other = own.use(await startReceiver());
      const closed = await startReceiver();
      await closed.close();
      gone = closed;
      const database = own.use(await createTestDatabase(kind));
      service = own.use(
        await startTestService({
          database,
          rpc: [chain.url, chain.wsUrl],
          receivers: [receiver, other, gone],
          retryMinutes: RETRY_MINUTES,
        }),
      );
      watcher = await createWatcher(service, 'acme');
      await service.inSync(chain);
    });
    after(() => own.disposeAsync());

    /** A watched address with a separate URL at a receiver, and the requests to that URL. */
    async function watchAt({ url }: { url: string }, who = watcher) {
      const address = freshAddress();
      const webhookUrl = `${url}/${address}`;
      return { address, webhookUrl, record: await who.watch({ address, webhookUrl }) };
    }
    const pay = async (to: Address): Promise<Hash> =>
      (await chain.transferNative({ from: chain.accounts[1], to, valueWei: 1n })).hash;
    const requestsAt = ({ requests }: Receiver, address: Address) =>
      requests.filter(({ path }) => path.endsWith(address));
    const rowOf = async (record: { id: string }) => {
      const [row, ...rest] = await service.notifications({ record });
      assert(row !== undefined && rest.length === 0, 'one notification');
      return row;
    };
    const attemptsOf = (notificationId: number) =>
      service.database.query<{
        started_at: Date;
        duration_ms: number;
        outcome: string;
        status: number | null;
      }>(
        sql`select started_at, duration_ms, outcome, status from delivery_attempt
          where notification_id = ${notificationId} order by id limit 100`,
      );

    test('a failed webhook is repeated on the schedule until a 2xx, and carries the time when it was due', async () => {
      receiver.setAnswer((request) => ({
        status: requestsAt(receiver, address).indexOf(request) < 4 ? 503 : 204,
      }));
      const { address, record } = await watchAt(receiver);
      await pay(address);
      const row = await waitUntil(async () => {
        const [found] = await service.notifications({ record });
        return found?.is_processed === true && found;
      });
      assert.deepEqual([row.state, row.retry_count, row.next_retry_text], ['processed', 4, null]);
      const requests = requestsAt(receiver, address);
      const bodies = requests.map(bodyOf);
      assert.equal(requests.length, 5);
      // Only the due time differs between attempts.
      for (const body of bodies) assert.deepEqual({ ...body, next_retry_at: null }, bodies[0]);
      assert.deepEqual(new Set(bodies.map(({ id }) => id)), new Set([row.id]));

      const attempts = await attemptsOf(row.id);
      assert.deepEqual(
        attempts.map(({ outcome, status }) => [outcome, status]),
        [...Array(4).fill(['http_5xx', 503]), ['success', 204]],
      );
      const [first, ...retries] = bodies;
      assert.equal(first?.next_retry_at, null);
      for (const [index, { next_retry_at }] of retries.entries()) {
        const failed = attempts[index];
        const repeated = attempts[index + 1];
        assert(failed !== undefined && repeated !== undefined);
        const dueAt = Date.parse(`${String(next_retry_at).replace(' ', 'T')}Z`);
        const delayMs = (RETRY_MINUTES[Math.min(index, RETRY_MINUTES.length - 1)] ?? 0) * MINUTE_MS;
        const waitedMs = dueAt - (failed.started_at.getTime() + failed.duration_ms);
        assert(
          waitedMs >= delayMs - 2 && waitedMs < delayMs + STALL_MS_MAX,
          `${waitedMs} ms for ${delayMs} ms`,
        );
        const lateMs = repeated.started_at.getTime() - dueAt;
        assert(lateMs >= 0 && lateMs < LATE_MS_MAX, `${lateMs} ms late`);
      }
    });

    test('a reset or refused connection counts as a failure, like any response that is not 2xx', async () => {
      receiver.setAnswer('reset');
      const [broken, refused] = [await watchAt(receiver), await watchAt(gone)];
      for (const { address } of [broken, refused]) await pay(address);
      const retriesOf = async ({ record }: { record: { id: string } }) =>
        (await service.notifications({ record }))[0]?.retry_count;
      await waitUntil(async () => (await retriesOf(broken)) === 2);
      await waitUntil(async () => (await retriesOf(refused)) === 2);
      receiver.setAnswer({});
      await using _back = await startReceiver({ port: gone.port });
      await waitUntil(async () => (await rowOf(broken.record)).is_processed);
      await waitUntil(async () => (await rowOf(refused.record)).is_processed);
    });

    test('every webhook carries the key of its watcher', async () => {
      receiver.setAnswer({});
      const rival = await createWatcher(service, 'rival');
      const [ours, theirs] = [await watchAt(receiver), await watchAt(receiver, rival)];
      await pay(ours.address);
      await pay(theirs.address);
      await service.inSync(chain);
      await service.drained();
      for (const [{ address }, { id, key }] of [
        [ours, watcher],
        [theirs, rival],
      ] as const) {
        const [request, ...rest] = requestsAt(receiver, address);
        assert(request !== undefined && rest.length === 0);
        assert.equal(request.headers.authorization, `Bearer ${key}`);
        assert.deepEqual([bodyOf(request).watcher_id, bodyOf(request).api_key], [id, key]);
      }
    });

    test('notifications that wait for a retry go to the new webhook URL', async () => {
      receiver.setAnswer({ status: 500 });
      const { address, record } = await watchAt(receiver);
      await pay(address);
      await waitUntil(async () => ((await service.notifications({ record }))[0]?.retry_count ?? 0) >= 1);
      const webhookUrl = `${other.url}/${address}`;
      await watcher.patch(record, { webhook_url: webhookUrl });
      const receivedBefore = requestsAt(receiver, address).length;
      await waitUntil(async () => (await rowOf(record)).is_processed);
      const [moved, ...rest] = requestsAt(other, address);
      assert(moved !== undefined && rest.length === 0);
      assert.equal(bodyOf(moved).webhook_url, webhookUrl);
      assert.equal(bodyOf(moved).id, (await rowOf(record)).id);
      // An attempt that was under way at the change may still have arrived at the old one.
      assert(requestsAt(receiver, address).length <= receivedBefore + 1);
    });

    test('a deleted address gets no further webhooks, not even waiting retries', async () => {
      receiver.setAnswer({ status: 500 });
      const { address, record } = await watchAt(receiver);
      const witness = await watchAt(receiver);
      await pay(address);
      await waitUntil(async () => ((await service.notifications({ record }))[0]?.retry_count ?? 0) >= 1);
      await watcher.remove(record);
      const received = requestsAt(receiver, address).length;
      await pay(address);
      // The witness fails three times after that, which takes longer than the deleted one's next retry.
      await pay(witness.address);
      await waitUntil(
        async () => ((await service.notifications({ record: witness.record }))[0]?.retry_count ?? 0) >= 3,
      );
      receiver.setAnswer({});
      await service.drained();
      const row = await rowOf(record);
      assert.deepEqual([row.state, row.is_processed], ['cancelled', false]);
      assert.equal(requestsAt(receiver, address).length, received);
    });

    test("a revoked key is refused at once, and its watcher's webhooks go on without it", async () => {
      receiver.setAnswer({});
      const former = await createWatcher(service, 'former');
      const { address } = await watchAt(receiver, former);
      assert.equal((await former.request('GET')).status, 200);
      await endKey(service.database, former.keyId, new Date());
      for (const method of ['GET', 'POST']) {
        const response = await former.request(method);
        assert.equal(response.status, 401);
        assert.deepEqual(await response.json(), {
          success: false,
          statusCode: 401,
          statusMessage: 'Unauthorized',
          code: 'revoked_key',
          errors: [{ path: '/authorization', message: 'was revoked. Ask the operator for a new API key' }],
        });
      }
      await pay(address);
      await service.inSync(chain);
      await service.drained();
      const [request] = requestsAt(receiver, address);
      assert(request !== undefined);
      assert.equal(request.headers.authorization, undefined);
      assert.equal(bodyOf(request).api_key, null);
    });

    test('a receiver that never answers does not delay another receiver', async () => {
      receiver.setAnswer('hang');
      other.setAnswer({});
      const silent = await Promise.all(Array.from({ length: 20 }, () => watchAt(receiver)));
      const lively = await Promise.all(Array.from({ length: 5 }, () => watchAt(other)));
      const received = receiver.requests.length;
      for (const { address } of silent) await pay(address);
      // As many as the service sends to that receiver at once.
      await receiver.waitFor(received + 4);
      const startedAt = performance.now();
      for (const { address } of lively) await pay(address);
      await waitUntil(() => lively.every(({ address }) => requestsAt(other, address).length === 1));
      const tookMs = performance.now() - startedAt;
      assert(tookMs < LATE_MS_MAX, `${tookMs} ms`);
      assert.equal((await rowOf(silent[0]?.record ?? { id: '' })).is_processed, false);
      for (const { record } of silent) await watcher.remove(record);
    });
  });
}

function bodyOf(request: ReceivedRequest): Record<string, unknown> {
  return JSON.parse(request.body);
}
