import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type IncomingMessage, request } from 'node:http';
import { describe, test } from 'node:test';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { headerOf, listStates, mine, transferOf } from '../../kit/chain-story.ts';
import { onPostgres, onSampledDatabase } from '../../kit/each-database.ts';
import { waitUntil } from '../../kit/wait.ts';
import { type Answer, type ApiStory, createApiStory, PATH } from '../api-story.ts';
import {
  addressOf,
  BULK,
  createBulkStory,
  type Json,
  type Outcome,
  recordOf,
  recordsOf,
  URL_A,
} from './bulk-story.ts';

type Record = NonNullable<Outcome['data']>;

/** The API and a key. */
async function createStory(database: Database) {
  const story = createApiStory(database);
  const { key, watcherId } = await story.issue('acme');
  return {
    ...story,
    key,
    watcherId,
    post: (records: unknown, headers = {}) => story.ask('POST', BULK, { key, body: { records }, headers }),
    put: (records: unknown, query = '') =>
      story.ask('PUT', `${BULK}?webhook_url=${encodeURIComponent(URL_A)}${query}`, {
        key,
        body: { records },
      }),
    list: () => list(story, key),
  };
}

type Story = Awaited<ReturnType<typeof createStory>>;

/** The API while it stores a list, for which other calls of the watcher wait until `end` is called. */
async function createBusyStory(database: Database): Promise<Story & { end(): Promise<void> }> {
  const isStoring = Promise.withResolvers<void>();
  const mayStore = Promise.withResolvers<void>();
  let isHeld = false;
  const story = await createStory({
    ...database,
    async transaction(work) {
      if (isHeld) {
        isStoring.resolve();
        await mayStore.promise;
      }
      return database.transaction(work);
    },
  });
  isHeld = true;
  const stored = story.post([recordOf(9)]);
  await isStoring.promise;
  return {
    ...story,
    async end() {
      mayStore.resolve();
      dataOf(await stored);
    },
  };
}

async function list(story: ApiStory, key: string): Promise<Record[]> {
  const { json } = await story.ask('GET', PATH, { key });
  return (json as { data: Record[] }).data.sort((a, b) => (a.address < b.address ? -1 : 1));
}

const dataOf = ({ status, json, text }: Answer): Record[] => {
  assert.equal(status, 200, text);
  return (json as { data: Record[] }).data;
};
const errorsOf = ({ json }: Answer) => (json as { errors: { path: string; message: string }[] }).errors;
const countsOf = ({ status, json, text }: Answer): Json => {
  assert.equal(status, 200, text);
  return (json as { data: Json }).data;
};

/** Statements that wait for a lock, and transactions that have not ended. */
const ofOthers = sql`select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`;
const WAITING = sql`${ofOthers} and wait_event_type = 'Lock'`;
const OPEN = sql`${ofOthers} and xact_start is not null`;

onSampledDatabase(import.meta.url, ({ database }) => {
  describe('a list of changes', () => {
    test('a list that repeats one record is refused, because each repetition would delay others', async () => {
      const { post, list } = await createStory(database());
      const [record] = dataOf(await post(recordsOf(1)));
      const changes = Array.from({ length: 10_000 }, (_, index) => ({
        ...{ operation: 'update', id: record?.id, webhook_url: `https://a.example.com/${index % 2}` },
      }));
      const refused = await post(changes);
      assert.equal(refused.status, 400);
      assert.equal(errorsOf(refused)[0]?.path, '/records/32/id');
      assert.match(errorsOf(refused)[0]?.message ?? '', /changed more than 32 times here/);
      assert.deepEqual(await list(), [record]);
      assert.equal(dataOf(await post(changes.slice(0, 32))).length, 32);
    });

    test('a record with an id that names no operation, or says create, is refused', async () => {
      const { post, list } = await createStory(database());
      const [record] = dataOf(await post(recordsOf(1)));
      for (const operation of [{}, { operation: 'create' }]) {
        const refused = await post([{ ...recordsOf(1)[0], ...operation, id: record?.id }]);
        assert.equal(refused.status, 400);
        assert.deepEqual(errorsOf(refused), [
          { path: '/records/0/id', message: 'is only for a record with operation update or delete' },
        ]);
      }
      assert.deepEqual(await list(), [record]);
      assert.equal(dataOf(await post([{ ...recordsOf(1)[0], id: null }])).length, 1, 'null is none');
    });

    test('each record of a list may change 32 times, next to each other too, and only further changes are refused', async () => {
      const { post, list } = await createStory(database());
      const records = dataOf(await post(recordsOf(40)));
      const changes = records.flatMap(({ id }, index) => [
        { operation: 'update', id, watch_coin: false },
        { operation: 'update', id, address: addressOf(100 + index) },
      ]);
      const answer = dataOf(await post(changes));
      assert.deepEqual(
        answer.map(({ id, address, watch_coin }) => [id, address, watch_coin]),
        records.flatMap(({ id, address }, index) => [
          [id, address, false],
          [id, addressOf(100 + index), false],
        ]),
      );
      assert.deepEqual(
        await list(),
        answer.filter((_, index) => index % 2 === 1),
      );
      const often = Array.from({ length: 32 }, () => ({ operation: 'update', id: records[0]?.id }));
      const refused = await post([...often, ...changes]);
      assert.equal(refused.status, 400);
      assert.deepEqual(
        errorsOf(refused).map(({ path }) => path),
        ['/records/32/id', '/records/33/id'],
      );
    });

    test('creates, updates and deletes in one call, and returns the same records as single calls', async () => {
      const { post, list, clock } = await createStory(database());
      const created = dataOf(await post(recordsOf(3)));
      assert.deepEqual(
        created,
        (await list()).sort((a, b) => (a.address < b.address ? -1 : 1)),
      );
      assert.deepEqual(Object.keys(created[0] ?? {}), [
        'id',
        'watcher_id',
        'address',
        'watch_coin',
        'watch_token',
        'webhook_url',
        'created_at',
        'updated_at',
      ]);
      const [first, second, third] = created;
      clock.advance(1_000);
      const answer = dataOf(
        await post([
          { operation: 'update', id: second?.id, watch_coin: false },
          { operation: 'delete', id: first?.id },
          { operation: 'create', ...recordOf(9) },
          { operation: 'update', id: third?.id, webhook_url: 'https://b.example.com/' },
        ]),
      );
      const updated_at = clock.now().toISOString();
      assert.deepEqual(answer, [
        { ...second, watch_coin: false, updated_at },
        first,
        answer[2],
        { ...third, webhook_url: 'https://b.example.com/', updated_at },
      ]);
      const [, , ninth] = await list();
      assert.deepEqual(await list(), [answer[0], answer[3], ninth]);
      assert.equal(ninth?.address, addressOf(9));
    });

    test('changes of one record happen in their order', async () => {
      const { post, list } = await createStory(database());
      const [record] = dataOf(await post(recordsOf(1)));
      const id = record?.id;
      const answer = dataOf(
        await post([
          { operation: 'update', id, address: addressOf(7) },
          { operation: 'update', id, watch_coin: false },
          { operation: 'update', id, address: addressOf(8) },
        ]),
      );
      assert.deepEqual(
        answer.map(({ address, watch_coin }) => [address, watch_coin]),
        [
          [addressOf(7), true],
          [addressOf(7), false],
          [addressOf(8), false],
        ],
      );
      assert.deepEqual(await list(), [answer[2]]);
      const gone = await post([
        { operation: 'delete', id },
        { operation: 'update', id, watch_coin: true },
      ]);
      assert.equal(gone.status, 404);
      assert.deepEqual(await list(), [answer[2]]);
    });

    test('is applied completely or not at all, and its error lists every problem', async () => {
      const { post, list, issue, ask } = await createStory(database());
      const [record] = dataOf(await post(recordsOf(1)));
      const wrong = await post([
        recordOf(2),
        { operation: 'delete', id: record?.id },
        { ...recordOf(3), address: '0x1', webhook_url: 'http://a.example.com/' },
        7,
        { operation: 'remove' },
      ]);
      assert.equal(wrong.status, 400);
      assert.deepEqual(
        errorsOf(wrong).map(({ path }) => path),
        ['/records/2/address', '/records/2/webhook_url', '/records/3', '/records/4/operation'],
      );
      const { key } = await issue('other');
      const [foreign] = dataOf(await ask('POST', BULK, { key, body: { records: [recordOf(5)] } }));
      for (const id of [foreign?.id, randomUUID(), 'x']) {
        for (const change of [
          { operation: 'delete', id },
          { operation: 'update', id, watch_coin: false },
        ]) {
          const unknown = await post([recordOf(2), change]);
          assert.equal(unknown.status, 404);
          assert.deepEqual(errorsOf(unknown), [{ path: '/records/1', message: 'Watched address not found' }]);
        }
      }
      assert.deepEqual(await list(), [record]);
      assert.deepEqual((await ask('GET', `${PATH}/${foreign?.id}`, { key })).json, {
        success: true,
        data: foreign,
      });
    });

    test('finds the same problems in a record as a single call', async () => {
      const { post, ask, key } = await createStory(database());
      const bodies = [
        {},
        { address: addressOf(1) },
        { ...recordOf(1), address: 5 },
        { ...recordOf(1), watch_coin: 'true', watch_token: null },
        { ...recordOf(1), address: 'x', webhook_url: 'https://10.0.0.1/' },
        { ...recordOf(1), webhook_url: `https://a.example.com/${'a'.repeat(2_048)}` },
        [],
        'text',
      ];
      for (const body of bodies) {
        const one = await ask('POST', PATH, { key, body: JSON.stringify(body) });
        assert.equal(one.status, 400);
        const many = errorsOf(await post([body]));
        assert.deepEqual(
          many.map(({ path, message }) => ({ path: path.replace('/records/0', ''), message })),
          errorsOf(one),
        );
      }
    });

    test('has 1 to 10,000 records and at most 8 MiB', async () => {
      const { post, key, ask } = await createStory(database());
      for (const records of [[], undefined, {}, recordsOf(10_001)])
        assert.equal((await post(records)).status, 400);
      assert.equal((await ask('POST', BULK, { key })).status, 400);
      assert.equal((await post([recordOf(1, { padding: 'x'.repeat(8 * 1024 * 1024) })])).status, 413);
      assert.equal((await post(Array.from({ length: 10_000 }, () => 7))).status, 400);
      assert.equal(errorsOf(await post(Array.from({ length: 10_000 }, () => 7))).length, 100);
      assert.equal(dataOf(await post(recordsOf(10_000))).length, 10_000);
    });

    test('of the same records, in opposite orders at the same time, does not stop another one', async () => {
      const { post } = await createStory(database());
      const records = dataOf(await post(recordsOf(300)));
      for (let round = 0; round < 6; round += 1) {
        const changes = records.map(({ id }, index) => ({
          operation: 'update',
          id,
          // Some rounds create delivery queues, for which the calls already wait for each other.
          ...(round < 3 ? { watch_coin: false } : { webhook_url: `https://${round}-${index}.example.com/` }),
        }));
        for (const answer of await Promise.all([post(changes), post(changes.toReversed())])) dataOf(answer);
      }
    });

    test('moves and cancels what waits, as single calls do', async () => {
      const { post } = await createStory(database());
      const [moved, gone] = dataOf(await post(recordsOf(2, 1)));
      const to = (number: number) => ({ receiver: addressOf(number) });
      await mine(database(), headerOf(1), [transferOf(to(1)), transferOf(to(2)), transferOf(to(2))]);
      await post([
        { operation: 'update', id: moved?.id, webhook_url: 'https://b.example.com/' },
        { operation: 'delete', id: gone?.id },
      ]);
      assert.deepEqual(await listStates(database()), ['waiting', 'cancelled', 'cancelled']);
      const [row] = await database().query<{ origin: string; is_due: boolean }>({
        text: `select origin, next_due is not null as is_due from notification_status n join lane l on l.id = n.lane_id
          where state = 'waiting'`,
        values: [],
      });
      assert.deepEqual(row, { origin: 'https://b.example.com:443', is_due: true });
    });
  });

  describe('the set of a URL', () => {
    test('becomes exactly the given set, and equal records stay', async () => {
      const { post, put, list } = await createStory(database());
      const before = dataOf(
        await post([...recordsOf(4), recordOf(1), recordOf(2, { webhook_url: 'https://b.example.com/' })]),
      );
      await mine(database(), headerOf(1), [transferOf({ receiver: addressOf(3) })]);
      const answer = await put([
        { address: addressOf(0) },
        { address: addressOf(1).slice(2), watch_token: false },
        { address: addressOf(2), watch_coin: true },
        { address: addressOf(8), watch_coin: false },
      ]);
      assert.deepEqual(countsOf(answer), { created: 1, updated: 1, deleted: 2, unchanged: 2 });
      assert.deepEqual(await listStates(database()), ['cancelled']);
      const after = await list();
      const byUrl = after.filter(({ webhook_url }) => webhook_url === URL_A);
      assert.deepEqual(
        byUrl.map(({ address, watch_coin, watch_token }) => [address, watch_coin, watch_token]),
        [
          [addressOf(0), true, true],
          [addressOf(1), true, false],
          [addressOf(2), true, true],
          [addressOf(8), false, true],
        ],
      );
      // Unchanged, with ids and times. So are the records of another URL.
      for (const record of [before[0], before[2], before[5]])
        assert.deepEqual(
          after.find(({ id }) => id === record?.id),
          record,
        );
      // The oldest of two records of one address stays.
      const [one, other] = [before[1]?.id ?? '', before[4]?.id ?? ''].sort();
      assert.deepEqual([byUrl[1]?.id, after.some(({ id }) => id === other)], [one, false]);
    });

    test('repeated changes nothing', async () => {
      const { put, list } = await createStory(database());
      const set = recordsOf(50).map(({ address }) => ({ address }));
      assert.equal(countsOf(await put(set)).created, 50);
      const before = await list();
      assert.deepEqual(countsOf(await put(set)), { created: 0, updated: 0, deleted: 0, unchanged: 50 });
      assert.deepEqual(await list(), before);
    });

    test('is not emptied by mistake', async () => {
      const { put, list } = await createStory(database());
      await put([{ address: addressOf(1) }]);
      for (const query of ['', '&allow_empty=false']) {
        const refused = await put([], query);
        assert.deepEqual([refused.status, errorsOf(refused)[0]?.path], [400, '/records']);
      }
      assert.equal((await list()).length, 1);
      assert.equal(countsOf(await put([], '&allow_empty=true')).deleted, 1);
      assert.deepEqual(await list(), []);
    });

    test('is refused with every problem', async () => {
      const { put, ask, key, list } = await createStory(database());
      const [first] = [{ address: addressOf(1) }];
      await put([first]);
      const cases: [records: unknown, paths: string[]][] = [
        [
          [first, { address: '0x1' }, first],
          ['/records/1/address', '/records/2/address'],
        ],
        [[first, {}], ['/records/1/address']],
        ['x', ['/records']],
      ];
      for (const [records, paths] of cases) {
        const refused = await put(records);
        assert.equal(refused.status, 400);
        assert.deepEqual(
          errorsOf(refused).map(({ path }) => path),
          paths,
        );
      }
      for (const query of ['', '?webhook_url=http://a.example.com/', '?webhook_url=https://10.0.0.1/']) {
        const refused = await ask('PUT', `${BULK}${query}`, { key, body: { records: [first] } });
        assert.deepEqual([refused.status, errorsOf(refused)[0]?.path], [400, '/webhook_url'], refused.text);
      }
      assert.equal((await list()).length, 1);
    });

    test('has at most 50,000 members, and its error lists the first hundred problems', async () => {
      const { put } = await createStory(database());
      const longest = Array.from({ length: 50_000 }, (_, number) => ({
        ...{ address: addressOf(number), watch_coin: true, watch_token: true },
      }));
      assert.deepEqual(errorsOf(await put([...longest.slice(1), { address: '0x1', watch_coin: true }])), [
        { path: '/records/49999/address', message: 'must be 40 hexadecimal characters, with or without 0x' },
      ]);
      // The list is not checked any further.
      assert.deepEqual(errorsOf(await put([...longest, { note: 1 }])), [
        { path: '/records', message: 'must not have more than 50000 items' },
      ]);
      assert.equal(errorsOf(await put(Array.from({ length: 50_000 }, () => ({})))).length, 100);
    });

    test('of another watcher is not touched', async () => {
      const { put, issue, ask } = await createStory(database());
      const { key } = await issue('other');
      const body = { records: [recordOf(1)] };
      const [foreign] = dataOf(await ask('POST', BULK, { key, body }));
      await put([{ address: addressOf(2) }]);
      assert.deepEqual((await ask('GET', PATH, { key })).json, { success: true, data: [foreign] });
    });
  });

  for (const [what, call] of [
    ['a list', ({ post }) => post([recordOf(1)])],
    ['a set', ({ put }) => put([{ address: addressOf(1) }])],
  ] satisfies [string, (story: Story) => Promise<Answer>][]) {
    test(`${what} that waits for another call has the time at which it is stored`, async () => {
      const story = await createBusyStory(database());
      const waiting = call(story);
      await waitUntil(() => story.clock.waits().length === 1);
      story.clock.advance(20_000);
      await story.end();
      assert.equal((await waiting).status, 200);
      const [record] = await story.list();
      assert.deepEqual(
        [record?.address, record?.created_at],
        [addressOf(1), story.clock.now().toISOString()],
      );
    });

    test(`${what} whose key is revoked while it waits for another call is refused`, async () => {
      const story = await createBusyStory(database());
      const waiting = call(story);
      await waitUntil(() => story.clock.waits().length === 1);
      await database().query(sql`update api_key set revoked_at = ${story.clock.now()}`);
      story.clock.advance(1_000);
      await story.end();
      assert.equal((await waiting).status, 401);
      assert.equal((await database().query(sql`select from watched_address`)).length, 1);
    });
  }

  test('JSON with too many values for its length is refused before it is parsed', async () => {
    const { ask, key } = await createStory(database());
    const set = `${BULK}?webhook_url=${encodeURIComponent(URL_A)}`;
    const cases: [method: 'POST' | 'PUT', path: string, valuesMax: number][] = [
      ['POST', BULK, 262_144],
      ['PUT', set, 262_144],
      ['POST', PATH, 2_048],
      ['PUT', `${PATH}/${randomUUID()}/settings`, 2_048],
    ];
    for (const [method, path, valuesMax] of cases)
      for (const values of ['{},', '[],', '1,', '"a":1,', '['].map((value) => value.repeat(valuesMax))) {
        const { status, json } = await ask(method, path, { key, body: `[${values}` });
        const message = `has more than ${valuesMax} values, which is the limit`;
        assert.deepEqual([status, (json as { errors: unknown }).errors], [400, [{ path: '', message }]]);
      }
  });

  test('without a key, the body is not read', async () => {
    const { ask } = createApiStory(database());
    for (const method of ['POST', 'PUT'] as const)
      assert.equal((await ask(method, BULK, { body: 'no json' })).status, 401);
    const { status, headers } = await ask('GET', BULK);
    assert.deepEqual([status, headers.allow], [405, 'POST, PUT']);
  });

  test('only the stream accepts lines of JSON, and it names both content types', async () => {
    const { ask, key } = await createStory(database());
    const plain = await ask('POST', BULK, { key, body: '{}', headers: { 'content-type': 'text/plain' } });
    assert.deepEqual(plain.json, {
      success: false,
      statusCode: 415,
      statusMessage: 'Unsupported Media Type: send Content-Type: application/json or application/x-ndjson',
    });
    const headers = { 'content-type': 'application/x-ndjson' };
    for (const [method, url] of [
      ['POST', PATH],
      ['PUT', `${BULK}?webhook_url=${URL_A}`],
    ] as const)
      assert.deepEqual((await ask(method, url, { key, body: '{}', headers })).json, {
        success: false,
        statusCode: 415,
        statusMessage: 'Unsupported Media Type: send Content-Type: application/json',
      });
  });
});

onPostgres(({ database, place }) => {
  for (const [what, method, path, bodyOf] of [
    [
      'a list of changes',
      'POST',
      BULK,
      (id: string) => [
        { operation: 'update', id, watch_coin: false },
        { operation: 'delete', id },
      ],
    ],
    [
      'a set',
      'PUT',
      `${BULK}?webhook_url=${encodeURIComponent(URL_A)}`,
      () => recordsOf(3, 1).map(({ address }) => ({ address })),
    ],
  ] as const)
    test(`${what} whose client hangs up before its end changes nothing`, async (t) => {
      if (database().isDistributed === true) return t.skip('on Citus, the call waits on a worker');
      await using story = await createBulkStory(database());
      const [port] = story.api.addresses().map((one) => (typeof one === 'string' ? undefined : one.port));
      const created = await story.ask('POST', BULK, { key: story.key, body: { records: recordsOf(1) } });
      const [record] = dataOf(created);
      assert.ok(record !== undefined);
      const before = await story.list();
      const ended = Promise.withResolvers<void>();
      const client = request(`http://127.0.0.1:${port}${path}`, {
        method,
        agent: false,
        headers: { authorization: `Bearer ${story.key}`, 'content-type': 'application/json' },
      });
      client.on('error', () => {});
      story.api.server.once('request', (incoming: IncomingMessage) =>
        incoming.socket.once('close', ended.resolve),
      );
      const holder = await place().open();
      await holder.transaction(async (tx) => {
        await tx.query(sql`select from watched_address for update`);
        client.end(JSON.stringify({ records: bodyOf(record.id) }));
        await waitUntil(async () => (await holder.query(WAITING)).length === 1, {
          describe: 'the call waits',
        });
        client.destroy();
        await ended.promise;
      });
      await waitUntil(async () => (await holder.query(OPEN)).length === 0, {
        describe: 'the call has ended',
      });
      assert.deepEqual(await story.list(), before);
      await holder.close();
    });
});
