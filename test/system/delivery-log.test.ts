/**
 * The delivery log as a watcher uses it, with the whole program between a real chain and a real receiver.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sql } from '../../src/store/db/sql.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createTestDatabase, type DatabaseKind, type TestDatabase } from '../kit/database.ts';
import { openEventStream } from '../kit/event-stream.ts';
import { type Receiver, startReceiver } from '../kit/receiver.ts';
import {
  createWatcher,
  freshAddress,
  startTestService,
  type TestService,
  type Watcher,
} from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

type Logged = {
  id: number;
  state: string;
  redelivery_count: number;
  attempts: { outcome: string; requests: number }[];
};
type Attempt = { id: number; notification_id: number; outcome: string };

/** One process, or one that delivers and one that serves the API. */
const places: { kind: DatabaseKind; name: string; roles: ('follower' | 'delivery' | 'api')[][] }[] = [
  { kind: 'embedded', name: 'in one process', roles: [['follower', 'delivery', 'api']] },
  { kind: 'postgres', name: 'in two processes’ roles', roles: [['follower', 'delivery'], ['api']] },
];

for (const { kind, name, roles } of places) {
  describe(`with the ${kind} database, ${name}`, () => {
    const own = new AsyncDisposableStack();
    let chain: Chain;
    let receiver: Receiver;
    let service: TestService;
    let watcher: Watcher;
    let database: TestDatabase;

    before(async () => {
      chain = own.use(await startChain());
      receiver = own.use(await startReceiver());
      database = own.use(await createTestDatabase(kind));
      for (const role of roles) {
        const options = { database, rpc: [chain.url, chain.wsUrl], receivers: [receiver], roles: role };
        service = own.use(await startTestService(options));
      }
      watcher = await createWatcher(service, 'acme');
      await service.inSync(chain);
    });
    after(() => own.disposeAsync());

    async function ask<T>(method: string, path: string): Promise<T> {
      const response = await watcher.request(method, `/../${path}`);
      const text = await response.text();
      assert.equal(response.status, 200, text);
      const { data }: { data: T } = JSON.parse(text);
      return data;
    }
    const openStream = (lastEventId?: string) =>
      openEventStream(`${service.apiUrl}/api/notifications/attempts/stream`, {
        key: watcher.key,
        ...(lastEventId !== undefined && { lastEventId }),
      });
    async function payTo(count: number) {
      const address = freshAddress();
      const record = await watcher.watch({ address, webhookUrl: `${receiver.url}/${address}` });
      for (let payment = 0; payment < count; payment += 1)
        await chain.transferNative({ from: chain.accounts[1], to: address, valueWei: 1n });
      const received = () => receiver.requests.filter(({ path }) => path.endsWith(address));
      await waitUntil(() => received().length === count);
      await service.drained();
      return { address, record, received };
    }

    test('a request that is repeated on a new connection is counted in its attempt', async () => {
      const { address, record } = await payTo(1);
      // If the connection was already closed, the reset is an ordinary failure, and the test tries again.
      for (let isRepeated = false; !isRepeated; ) {
        let resets = 1;
        receiver.setAnswer(() => (resets-- > 0 ? 'reset' : {}));
        await chain.transferNative({ from: chain.accounts[1], to: address, valueWei: 1n });
        await service.inSync(chain);
        await service.drained();
        const [newest] = await ask<Logged[]>('GET', `log?watched_address_id=${record.id}&limit=1`);
        const { attempts } = await ask<Logged>('GET', `log/${newest?.id}`);
        isRepeated = attempts[0]?.outcome === 'success' && attempts[0].requests === 2;
      }
      receiver.setAnswer({});
    });

    test('a delivered notification is in the log with its attempt, and a redelivery has the same id', async () => {
      const { record, received } = await payTo(1);
      const [logged, ...rest] = await ask<Logged[]>('GET', `log?watched_address_id=${record.id}`);
      assert.ok(logged !== undefined && rest.length === 0);
      await ask('POST', `log/${logged.id}/redeliver`);
      await waitUntil(() => received().length === 2);
      await service.drained();
      const one = await ask<Logged>('GET', `log/${logged.id}`);
      assert.deepEqual(
        [one.state, one.redelivery_count, one.attempts.map(({ outcome }) => outcome)],
        ['processed', 1, ['success', 'success']],
      );
      const [first, second] = received();
      assert.equal(second?.body, first?.body);
    });

    test('a redelivery by address sends each notification once', async () => {
      const { address, received } = await payTo(3);
      const answer = await ask('POST', `log/redeliver?address=${address}&state=processed`);
      assert.deepEqual(answer, { redelivered: 3, cursor: null });
      await waitUntil(() => received().length === 6);
      await service.drained();
      const ids = received().map(({ json }) => (json as { id: number }).id);
      assert.deepEqual(new Set(ids.slice(0, 3)), new Set(ids.slice(3)));
      assert.equal(received().length, 6);
    });

    test('a test webhook arrives marked as a test, and is not in the log', async () => {
      const { address, record, received } = await payTo(0);
      const answer = await ask<{ outcome: string; status: number }>(
        'POST',
        `watched-addresses/${record.id}/test`,
      );
      assert.deepEqual([answer.outcome, answer.status], ['success', 200]);
      const [request] = received();
      assert.equal(request?.headers['webhook-test'], 'true');
      const { amount, receiver: to } = request.json as { amount: number; receiver: string };
      assert.deepEqual([amount, to], [0, address]);
      assert.deepEqual(await ask('GET', `log?watched_address_id=${record.id}`), []);
    });

    test('a test webhook is subject to the address guard, so a forbidden receiver gets none', async () => {
      const hidden = await startReceiver({ host: '127.0.0.1' });
      // Webhooks may no longer use this port. They could when the URL was stored.
      const record = await watcher.watch({ address: freshAddress(), webhookUrl: receiver.url });
      await service.database.query(sql`
        update watched_address set webhook_url = ${hidden.url} where id = ${record.id}`);
      const answer = await ask<{ outcome: string }>('POST', `watched-addresses/${record.id}/test`);
      assert.equal(answer.outcome, 'refused');
      assert.equal(hidden.requests.length, 0);
      await hidden.close();
    });

    test('the stream has every attempt, and resumes after the last one received', async () => {
      const first = await openStream();
      const { record } = await payTo(2);
      await waitUntil(() => first.events.length >= 2);
      await first[Symbol.asyncDispose]();
      const { id } = first.events.at(-1) ?? {};
      const second = await payTo(3);
      await using again = await openStream(id);
      await waitUntil(() => again.events.length >= 3);
      const notificationIds = async ({ record }: { record: { id: string } }) =>
        (await service.notifications({ record })).map((row) => row.id);
      const streamed = [first, again].map(({ events }) =>
        events.map(({ data }) => (data as Attempt).notification_id),
      );
      assert.deepEqual(streamed[0]?.toSorted(byNumber), await notificationIds({ record }));
      assert.deepEqual(streamed[1]?.toSorted(byNumber), await notificationIds(second));
    });
  });
}

const byNumber = (one: number, other: number) => one - other;
