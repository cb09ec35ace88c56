import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Database } from '../../../src/store/db/db.ts';
import { type Sql, sql } from '../../../src/store/db/sql.ts';
import { coin, headerOf, later, mine, transferOf, watchAddress } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { emptyDatabase } from '../../kit/empty-tables.ts';
import { insertNotifications } from '../../kit/many-notifications.ts';
import { type ApiStory, createApiStory } from '../api-story.ts';

const LOG = '/api/notifications/log';
const NOT_FOUND = { success: false, statusCode: 404, statusMessage: 'Notification not found' };

type Notification = { id: number; state: string; redelivery_count: number; attempts?: { id: number }[] };

/** Watcher acme with a record and this many notifications. */
async function createStory(database: Database, count = 3, state: 'waiting' | 'processed' = 'waiting') {
  const story = createApiStory(database);
  const { key, watcherId } = await story.issue('acme');
  const record = await watchAddress(database, { watcherId });
  await insertNotifications(database, { records: [record], count, state });
  return { ...story, key, watcherId, record };
}

async function get<T>({ ask }: Pick<ApiStory, 'ask'>, key: string, url: string): Promise<T> {
  const { status, json, text } = await ask('GET', url, { key });
  assert.equal(status, 200, text);
  return (json as { data: T }).data;
}

const idsOf = (notifications: readonly { id: number }[]) => notifications.map(({ id }) => id);
const nextOf = (headers: { [name: string]: string | undefined }) =>
  /^<(.+)>; rel="next"$/.exec(headers.link ?? '')?.[1];

const setState = (database: Database, id: number, state: string) =>
  database.query(sql`update notification_status set state = ${state}, processed_at = null where id = ${id}`);

onSampledDatabase(import.meta.url, ({ database }) => {
  test('a notification in the log has these fields, exact amounts as text, and times in ISO 8601', async () => {
    const story = createApiStory(database());
    const { key, watcherId } = await story.issue('acme');
    const record = await watchAddress(database(), { watcherId });
    const transfer = transferOf({ amount: 2n ** 255n, receiver: record.address });
    await mine(database(), headerOf(7), [transfer]);
    const { text } = await story.ask('GET', LOG, { key });
    const logged = {
      id: 1,
      watched_address_id: record.id,
      watched_address: record.address,
      hash: transfer.txHash,
      type: 'COIN_TRANSFER',
      sender: transfer.sender,
      receiver: transfer.receiver,
      amount: String(2n ** 255n),
      asset: 'BELL',
      block_number: 7,
      state: 'waiting',
      status: 'waiting',
      failures: 0,
      url: 'https://one.example/hook',
      origin: 'https://one.example:443',
      confirmations: 0,
      confirmations_needed: 3,
      last_attempt: null as object | null,
      revision: 0,
      orphaned: false,
      orphaned_at: null,
      orphaned_block: null,
      replaces: null,
      replaced_by: null,
      retry_count: 0,
      redelivery_count: 0,
      next_retry_at: null,
      created_at: '2025-11-20T12:00:00.000Z',
      processed_at: null,
    };
    assert.equal(text, JSON.stringify({ success: true, data: [logged] }));
    await database().query(sql`
      insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome)
      select shard_id, 1, ${later(5)}, 9, 'timeout' from notification`);
    const attempt = {
      id: 1,
      notification_id: 1,
      revision: 0,
      started_at: '2025-11-20T12:00:00.005Z',
      duration_ms: 9,
      requests: 1,
      outcome: 'timeout',
      status: null,
      response: null,
    };
    const { id, started_at, duration_ms, outcome, status } = attempt;
    logged.last_attempt = { id, started_at, duration_ms, outcome, status };
    const block = {
      ...{ number: 7, hash: headerOf(7).hash, mined_at: headerOf(7).minedAt.toISOString() },
      ...{ confirmations: 0, is_final: false, is_orphaned: false },
    };
    const one = await story.ask('GET', `${LOG}/1`, { key });
    const { message, ...shown } = (one.json as { data: { message: unknown } }).data;
    assert.equal(JSON.stringify(shown), JSON.stringify({ ...logged, attempts: [attempt], block }));
    assert.equal(typeof message, 'object');
    const attempts = await story.ask('GET', `${LOG}/1/attempts`, { key });
    assert.equal(attempts.text, JSON.stringify({ success: true, data: [attempt] }));
  });

  test('a notification never shows the block of another branch, whichever statement a reorg is committed after', async (t) => {
    if (database().isDistributed === true) return t.skip('on Citus, workers and the coordinator are asked');
    const shown: boolean[] = [];
    for (let statements = Infinity, last = 1; last < statements; last += 1) {
      await emptyDatabase(database());
      let [count, isOn] = [0, false];
      const query = async <Row>(statement: Sql) => {
        const rows = await database().query<Row>(statement);
        if (isOn) count += 1;
        if (isOn && count === last)
          await mine(database(), headerOf(2, 1, 1), [], { reorg: { ancestorNumber: 1 } });
        return rows;
      };
      const story = createApiStory({ ...database(), query });
      const { key, watcherId } = await story.issue('acme');
      await watchAddress(database(), { watcherId });
      await mine(database(), headerOf(1), []);
      await mine(database(), headerOf(2), [transferOf()]);
      const [{ id }] = await get<[Notification]>(story, key, LOG);
      isOn = true;
      const one = await get<{ orphaned: boolean; block: { hash: string; is_orphaned: boolean } }>(
        story,
        key,
        `${LOG}/${id}`,
      );
      statements = count;
      assert.deepEqual(
        [one.block.hash, one.block.is_orphaned],
        [headerOf(2).hash, one.orphaned],
        String(last),
      );
      shown.push(one.orphaned);
    }
    assert.deepEqual([shown[0], shown.at(-1)], [true, false]);
  });

  test('the message of a notification is what would be sent now, with exact amounts and without secrets', async () => {
    const story = createApiStory(database());
    const { key, watcherId } = await story.issue('acme');
    const record = await watchAddress(database(), { watcherId });
    const transfer = transferOf({ amount: 2n ** 255n, receiver: record.address });
    await mine(database(), headerOf(7), [transfer]);
    const { message } = await get<{ message: { body: string; headers: Record<string, string> } }>(
      story,
      key,
      `${LOG}/1`,
    );
    const body = `{"id":1,"watched_addresses_id":"${record.id}","watcher_id":${watcherId},"hash":"${transfer.txHash}","type":"COIN_TRANSFER","sender":"${transfer.sender}","receiver":"${transfer.receiver}","amount":${2n ** 255n},"asset":"BELL","timestamp":"2025-11-20 12:00:00.000000","webhook_url":"https://one.example/hook","api_key":"[redacted]","next_retry_at":null}`;
    assert.equal(message.body, body);
    const { headers } = message;
    assert.deepEqual(
      [headers.authorization, headers['webhook-signature'], headers['webhook-id']],
      ['Bearer [redacted]', '[redacted]', '1'],
    );
    assert.equal(headers['chainbell-block'], `7 ${headerOf(7).hash}`);
    await database().query(sql`delete from watched_address`);
    const gone = await get<{ message: unknown; url: unknown }>(story, key, `${LOG}/1`);
    assert.deepEqual([gone.message, gone.url], [null, null]);
  });

  test('a notification is being sent while this process has its attempt under way', async () => {
    const sent = new Set<number>();
    const inFlight = { isUnderWay: (_lane: number, id: number) => sent.has(id), receiver: () => undefined };
    const story = createApiStory(database(), {}, undefined, { inFlight });
    const { key, watcherId } = await story.issue('acme');
    const record = await watchAddress(database(), { watcherId });
    await insertNotifications(database(), { records: [record], count: 2 });
    sent.add(2);
    const rows = await get<{ id: number; status: string }[]>(story, key, LOG);
    assert.deepEqual(
      rows.map(({ id, status }) => [id, status]),
      [
        [2, 'sending'],
        [1, 'waiting'],
      ],
    );
  });

  test('matches are counted, and the count says whether it is complete', async () => {
    const { key, ask, record } = await createStory(database(), 30);
    const countOf = (query: string) => get({ ask }, key, `${LOG}/count?${query}`);
    assert.deepEqual(await countOf(''), { count: 30, is_complete: true });
    assert.deepEqual(await countOf('to_block=1'), { count: 9, is_complete: true });
    assert.deepEqual(await countOf('status=delivered'), { count: 0, is_complete: true });
    await insertNotifications(database(), { records: [record], count: 10_000 });
    assert.deepEqual(await countOf(''), { count: 10_000, is_complete: false });
    assert.equal((await ask('GET', `${LOG}/count?limit=5`, { key })).status, 400);
    assert.equal((await ask('GET', `${LOG}/count`)).status, 401);
  });

  test('the list is sorted newest first, and its links lead through all matches', async () => {
    const { key, ask, record } = await createStory(database(), 9);
    await mine(database(), headerOf(1), [
      transferOf({ kind: 'token', token: coin, receiver: record.address }),
    ]);
    const read: number[] = [];
    let pages = 0;
    let url: string | undefined = `${LOG}?limit=4&type=COIN_TRANSFER&watched_address_id=${record.id}`;
    while (url !== undefined) {
      const { json, headers } = await ask('GET', url, { key });
      read.push(...idsOf((json as { data: Notification[] }).data));
      pages += 1;
      url = nextOf(headers);
    }
    assert.deepEqual(read, [9, 8, 7, 6, 5, 4, 3, 2, 1]);
    assert.equal(pages, 3);
  });

  test('every filter works under its name', async () => {
    const { key, ask, record } = await createStory(database(), 30);
    await setState(database(), 2, 'cancelled');
    await database().query(sql`
      insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome, status)
      select n.shard_id, n.id, n.created_at, 1, outcome, status
      from notification n join (values (1, 4, 'timeout', null), (2, 4, 'http_5xx', 503), (3, 7, 'http_5xx', 503), (4, 7, 'timeout', null))
        as a (place, id, outcome, status) on a.id = n.id
      order by a.place`);
    const hash = `0x${(5).toString(16).padStart(64, '0')}`;
    const cases: [query: string, ids: number[]][] = [
      ['state=cancelled', [2]],
      ['type=TOKEN_TRANSFER', []],
      [`hash=${hash}`, [5]],
      [`hash=${hash.slice(2).toUpperCase()}`, [5]],
      [`address=${record.address}&from_block=3&to_block=3&limit=2`, [29, 28]],
      [`watched_address_id=${record.id}&to_block=1`, [9, 8, 7, 6, 5, 4, 3, 2, 1]],
      ['address=0x00000000000000000000000000000000000000ff', []],
      ['from=2025-11-20T12:00:29Z', [30, 29]],
      ['until=2025-11-20T12:00:03.000Z&from=2025-11-20T12:00Z', [2, 1]],
      ['to=2025-11-20T12:00:03.000Z&from=2025-11-20T12:00Z', [2, 1]],
      ['status=cancelled', [2]],
      ['token=native&to_block=0&limit=1', []],
      [`token=${coin}`, []],
      ['min_amount=2', []],
      ['min_amount=1&max_amount=1&limit=2', [30, 29]],
      [`max_amount=${2n ** 256n - 1n}&limit=1`, [30]],
      ['direction=in&limit=2', []],
      ['origin=https://one.example:443&limit=2', [30, 29]],
      ['origin=https://One.example.&limit=2', [30, 29]],
      ['origin=https://two.example:443', []],
      ['origin=http://one.example', []],
      ['code=503', [4]],
      ['code=timeout', [7]],
    ];
    for (const [query, ids] of cases)
      assert.deepEqual(idsOf(await get<Notification[]>({ ask }, key, `${LOG}?${query}`)), ids, query);
  });

  test('one error lists every wrong parameter by its path', async () => {
    const { key, ask } = await createStory(database());
    const wrong = {
      state: 'done',
      type: 'NFT',
      hash: '0x12',
      address: 'x',
      watched_address_id: '1',
      from: 'yesterday',
      until: '2025-13-01T00:00:00Z',
      from_block: '-1',
      to_block: '1.5',
      status: 'sending',
      token: '0x12',
      min_amount: '-1',
      max_amount: '1e18',
      direction: 'both',
      origin: 'https://a b',
      code: '700',
      limit: '1001',
      cursor: 'x',
    };
    const { status, json } = await ask('GET', `${LOG}?${new URLSearchParams(wrong).toString()}`, { key });
    assert.equal(status, 400);
    const { errors } = json as { errors: { path: string }[] };
    assert.deepEqual(
      errors.map(({ path }) => path).sort(),
      Object.keys(wrong)
        .map((name) => `/${name}`)
        .sort(),
    );
    for (const url of [
      `${LOG}?limit=0`,
      `${LOG}?stat=held`,
      `${LOG}?state=held&state=waiting`,
      `${LOG}/1/attempts?cursor=x`,
      `${LOG}?from=0000-01-01T00:00:00Z`,
      `${LOG}?until=2025-02-30T00:00:00Z`,
      `${LOG}?to=2025-02-30T00:00:00Z`,
      `${LOG}?until=2025-02-20&to=2025-02-20`,
    ])
      assert.equal((await ask('GET', url, { key })).status, 400, url);
  });

  test('a range that ends before it begins is refused, and one of a single value is not', async () => {
    const { key, ask } = await createStory(database());
    const noon = '2025-11-20T12:00Z';
    const errorsOf = async (query: string) => {
      const { status, json } = await ask('GET', `${LOG}?${query}`, { key });
      return status === 200 ? [] : (json as { errors: unknown[] }).errors;
    };
    assert.deepEqual(
      await errorsOf(`from_block=10&to_block=5&from=${noon}&until=2025-11-19&min_amount=3&max_amount=2`),
      [
        { path: '/from', message: 'is above until' },
        { path: '/from_block', message: 'is above to_block' },
        { path: '/min_amount', message: 'is above max_amount' },
      ],
    );
    assert.deepEqual(await errorsOf(`from=${noon}&to=2025-11-19`), [
      { path: '/from', message: 'is above to' },
    ]);
    assert.deepEqual(
      await errorsOf(`from_block=5&to_block=5&from=${noon}&to=${noon}&min_amount=2&max_amount=2`),
      [],
    );
  });

  test('an address with too many records is refused, with the advice to choose one', async () => {
    const { key, ask, watcherId, record } = await createStory(database());
    for (let count = 2; count <= 10; count += 1) await watchAddress(database(), { watcherId });
    const url = `${LOG}?address=${record.address}`;
    assert.equal((await get<Notification[]>({ ask }, key, url)).length, 3);
    await watchAddress(database(), { watcherId });
    const { status, json } = await ask('GET', url, { key });
    assert.equal(status, 400);
    assert.equal((json as { errors: { path: string }[] }).errors[0]?.path, '/address');
  });

  test('attempts are paged, newest first', async () => {
    const { key, ask, watcherId } = await createStory(database());
    await database().query(sql`
      insert into delivery_attempt (shard_id, notification_id, started_at, duration_ms, outcome)
      select ${watcherId}::bigint, 2, now(), 1, 'timeout' from generate_series(1, 130)`);
    const { json, headers } = await ask('GET', `${LOG}/2`, { key });
    const { attempts = [] } = (json as { data: Notification }).data;
    assert.deepEqual([attempts.length, attempts[0]?.id], [100, 130]);
    const rest = await get<{ id: number }[]>({ ask }, key, nextOf(headers) ?? '');
    assert.deepEqual([rest.length, rest.at(-1)?.id], [30, 1]);
  });

  test('an unknown id, another watcher’s and an invalid id get the same answer, and a key is required', async () => {
    const { ask, issue } = await createStory(database());
    const { key } = await issue('other');
    const paths: ['GET' | 'POST', string][] = [
      ['GET', ''],
      ['GET', '/attempts'],
      ['POST', '/redeliver'],
    ];
    for (const id of ['1', '999', 'x', '1e3', '-1', '9'.repeat(40)]) {
      for (const [method, path] of paths) {
        const { status, json } = await ask(method, `${LOG}/${id}${path}`, { key });
        assert.deepEqual([status, json], [404, NOT_FOUND], `${method} ${id}${path}`);
        assert.equal((await ask(method, `${LOG}/${id}${path}`)).status, 401);
      }
    }
    assert.deepEqual(await get({ ask }, key, LOG), []);
    assert.equal((await ask('GET', LOG)).status, 401);
    assert.equal((await ask('POST', `${LOG}/redeliver?state=processed`)).status, 401);
  });

  test('a notification is redelivered on each request', async () => {
    const { key, ask } = await createStory(database(), 3, 'processed');
    for (const count of [1, 2]) {
      const { status, json } = await ask('POST', `${LOG}/2/redeliver`, { key });
      assert.equal(status, 200);
      const { data } = json as { data: Notification };
      assert.deepEqual([data.id, data.state, data.redelivery_count], [2, 'waiting', count]);
      // A second request before it was sent changes nothing.
      assert.equal((await ask('POST', `${LOG}/2/redeliver`, { key })).status, 200);
      await database().query(
        sql`update notification_status set state = 'processed', processed_at = now() where id = 2`,
      );
    }
  });

  test('a notification that cannot be redelivered is refused with the reason', async () => {
    const { key, ask, clock } = await createStory(database(), 4, 'processed');
    const reasons = {
      held: 'It waits for confirmations, or for an earlier notification in strict order',
      withdrawn: 'Its block was orphaned by a reorg',
      cancelled: 'Its watched address was deleted',
    };
    clock.advance(9_999_999);
    for (const [index, [state, statusMessage]] of Object.entries(reasons).entries()) {
      await setState(database(), index + 1, state);
      const { status, json } = await ask('POST', `${LOG}/${index + 1}/redeliver`, { key });
      assert.deepEqual([status, json], [409, { success: false, statusCode: 409, statusMessage }]);
    }
    await database().query(sql`insert into reorg (happened_at, ancestor_number) values (now(), 1)`);
    await database().query(sql`update notification_status set reorg_id = 1 where id = 4`);
    const orphaned = await ask('POST', `${LOG}/4/redeliver`, { key });
    assert.deepEqual(orphaned.json, { success: false, statusCode: 409, statusMessage: reasons.withdrawn });
    await database().query(sql`update notification_status set reorg_id = null where id = 4`);
    await database().query(sql`delete from watched_address`);
    const { json } = await ask('POST', `${LOG}/4/redeliver`, { key });
    assert.deepEqual(json, { success: false, statusCode: 409, statusMessage: reasons.cancelled });
  });

  test('bulk redelivery with the filters of the list continues from request to request until the cursor is null', async () => {
    const { key, ask, clock } = await createStory(database(), 21_000, 'processed');
    clock.advance(9_999_999_999);
    let redelivered = 0;
    let requests = 0;
    let url: string | undefined = `${LOG}/redeliver?state=processed&from_block=11`;
    while (url !== undefined) {
      const { status, json, headers, text }: Awaited<ReturnType<ApiStory['ask']>> = await ask('POST', url, {
        key,
      });
      assert.equal(status, 200, text);
      const { data } = json as { data: { redelivered: number; cursor: string | null } };
      redelivered += data.redelivered;
      requests += 1;
      url = nextOf(headers);
      assert.equal(data.cursor === null, url === undefined);
    }
    assert.equal(redelivered, 21_000 - 99);
    assert.equal(requests, 3);
    const { json } = await ask('POST', `${LOG}/redeliver?state=processed&from_block=11`, { key });
    assert.deepEqual(json, { success: true, data: { redelivered: 0, cursor: null } });
  });

  test('bulk redelivery requires a known filter and a valid cursor', async () => {
    const { key, ask } = await createStory(database(), 3, 'processed');
    for (const query of [
      '',
      '?cursor=1-2',
      '?stat=processed',
      '?state=processed&cursor=2',
      '?state=processed&cursor=',
    ]) {
      const { status } = await ask('POST', `${LOG}/redeliver${query}`, { key });
      assert.equal(status, 400, query);
    }
    assert.deepEqual(await get({ ask }, key, `${LOG}?state=waiting`), []);
  });
});
