import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import type { ClientRequest, IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { answerLines } from '../../../src/api/notifications/bulk-stream.ts';
import { Fault } from '../../../src/core/fault.ts';
import { silentLog } from '../../../src/core/log.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { suspendWatcher } from '../../../src/store/watchers/watchers.ts';
import { headerOf, mine, noon, transferOf } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { sampleSize } from '../../kit/sample.ts';
import { waitUntil } from '../../kit/wait.ts';
import { createApiStory, strict } from '../api-story.ts';
import {
  addressOf,
  type BulkStory,
  createBulkStory,
  type Outcome,
  readOutcomes,
  recordOf,
  recordsOf,
} from './bulk-story.ts';

const GROUP = 1_000;
/** Twenty groups; a third in a run of the whole suite. */
const LOADED = sampleSize(20_000);
const SILENCE_MS = 60_000;
const CHECK_MS = 2_500;
const SILENT = {
  success: false,
  statusCode: 408,
  statusMessage: 'Request Timeout: no line arrived for 60 s',
};
const KEY = { 'idempotency-key': 'load-1' };

const linesOf = (values: readonly unknown[]) => values.map((value) => `${JSON.stringify(value)}\n`).join('');
const successes = (outcomes: readonly Outcome[]) => outcomes.filter(({ success }) => success).length;

async function responseOf(stream: ClientRequest): Promise<IncomingMessage> {
  const [response] = await once(stream, 'response');
  return response;
}

async function countRecords(database: Database): Promise<number> {
  const [row] = await database.query<{ count: number }>(sql`select count(*) as count from watched_address`);
  return row?.count ?? 0;
}

/** The connections of the server. */
function countConnections({ api }: BulkStory): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  api.server.getConnections((error, count) => (error === null ? resolve(count) : reject(error)));
  return promise;
}

async function countOpenTransactions(database: Database): Promise<number> {
  const [row] = await database.query<{ count: number }>(sql`
    select count(*) as count from pg_stat_activity
    where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
      and xact_start is not null`);
  return row?.count ?? 0;
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('each line gets the answer of a single request, and a wrong line does not stop others', async () => {
    await using story = await createBulkStory(database());
    const [first, second] = await story.send(recordsOf(2));
    const id = first?.data?.id ?? '';
    const lines = [
      recordOf(5),
      '{ no json',
      '',
      { ...recordOf(6), address: 'x', webhook_url: 'y' },
      { operation: 'update', id, watch_coin: false },
      { operation: 'update', id: randomUUID(), watch_coin: false },
      { operation: 'delete', id: second?.data?.id },
      { operation: 'delete', id: second?.data?.id },
      { operation: 'move' },
      'x'.repeat(9_000),
      'null',
      recordOf(7),
    ];
    const outcomes = await story.send(lines);
    assert.deepEqual(
      outcomes.map(({ index }) => index),
      Array.from({ length: 11 }, (_, index) => index),
    );
    assert.deepEqual(
      outcomes.map(({ statusCode, statusMessage, errors = [] }) =>
        statusCode === undefined
          ? 'done'
          : [statusCode, statusMessage, ...errors.map(({ path }) => path)].join(' '),
      ),
      [
        'done',
        '400 Invalid request ',
        '400 Invalid request /address /webhook_url',
        'done',
        '404 Watched address not found',
        'done',
        '404 Watched address not found',
        '400 Invalid request /operation',
        '400 Invalid request ',
        '400 Invalid request ',
        'done',
      ],
    );
    assert.deepEqual(outcomes[5], { index: 5, success: true, data: second?.data });
    assert.deepEqual(
      await story.list(),
      [outcomes[3], outcomes[0], outcomes[10]].map((outcome) => outcome?.data),
    );
  });

  test('a line with more values than any record has is not parsed', async () => {
    await using story = await createBulkStory(database());
    const [outcome] = await story.send([`[${'[],'.repeat(256)}`]);
    assert.deepEqual(outcome?.errors, [
      { path: '', message: 'has more than 256 values, which is the limit' },
    ]);
  });

  test('a stream without lines has an empty response', async () => {
    await using story = await createBulkStory(database());
    assert.deepEqual(await story.send([]), []);
    assert.deepEqual(await story.send(['', ' ']), []);
    const empty = story.open({ 'content-type': 'application/x-ndjson', 'content-length': '0' });
    empty.end();
    assert.equal((await responseOf(empty)).statusCode, 200);
  });

  test('true answers arrive while the body is still being sent', async () => {
    await using story = await createBulkStory(database());
    const stream = story.open();
    stream.write(linesOf(recordsOf(GROUP + 1)));
    const response = await responseOf(stream);
    assert.equal(response.statusCode, 200);
    assert.equal(response.headers['content-type'], 'application/x-ndjson');
    const outcomes = readOutcomes(response);
    for (let index = 0; index < GROUP; index += 1) {
      const { value } = await outcomes.next();
      assert.equal(value.data.address, addressOf(index));
    }
    assert.equal(await countRecords(database()), GROUP);
    stream.end(linesOf([recordOf(GROUP + 1)]));
    assert.deepEqual(
      (await Array.fromAsync(outcomes)).map(({ index }) => index),
      [GROUP, GROUP + 1],
    );
  });

  test('a stream refuses only those changes of a group that come after the 32nd of their record', async () => {
    await using story = await createBulkStory(database());
    const created = await story.send(recordsOf(3));
    const outcomes = await story.send(
      created.flatMap(({ data }) =>
        Array.from({ length: 33 }, (_, count) => ({
          ...{ operation: 'update', id: data?.id, watch_coin: count % 2 === 0 },
        })),
      ),
    );
    assert.deepEqual(
      outcomes.filter(({ success }) => !success).map(({ index, statusCode }) => [index, statusCode]),
      [
        [32, 400],
        [65, 400],
        [98, 400],
      ],
    );
    assert.deepEqual(
      (await story.list()).map(({ watch_coin }) => watch_coin),
      [false, false, false],
    );
  });

  test('nothing is stored or read before the client takes the previous answers', async () => {
    const story = createApiStory(database());
    const { watcherId } = await story.issue('acme');
    let sent = 0;
    async function* endless(): AsyncGenerator<Buffer> {
      for (;;) {
        yield Buffer.from(linesOf(recordsOf(100, sent)));
        sent += 100;
      }
    }
    const options = {
      database: database(),
      clock: story.clock,
      log: silentLog(),
      webhookPolicy: strict,
      limits: {},
    };
    const lines = {
      watcherId,
      body: endless(),
      once: undefined,
      inTurn: <T>(work: () => Promise<T>) => work(),
    };
    const answers = (await answerLines(options, lines))[Symbol.asyncIterator]();
    for (const count of [1, 2, 3]) {
      const { value } = await answers.next();
      assert.equal(value.split('\n').length, GROUP + 1);
      assert.equal(await countRecords(database()), count * GROUP);
      assert.ok(sent <= count * GROUP + 100, `${sent} lines read`);
    }
  });

  for (const [event, reason, happen] of [
    [
      'watcher is suspended',
      /^This watcher is suspended/,
      ({ watcherId }) => suspendWatcher(database(), watcherId, noon),
    ],
    [
      'key is revoked',
      /^Unauthorized$/,
      () => database().query(sql`update api_key set revoked_at = ${noon}`),
    ],
  ] satisfies [string, RegExp, (story: BulkStory) => Promise<unknown>][])
    test(`a stream ends with the next group when its ${event}`, async () => {
      await using story = await createBulkStory(database());
      const stream = story.open();
      const responded = responseOf(stream);
      stream.write(linesOf(recordsOf(GROUP + 1)));
      const outcomes = readOutcomes(await responded);
      for (let index = 0; index < GROUP; index += 1) await outcomes.next();
      await happen(story);
      stream.end();
      const { value } = await outcomes.next();
      assert.match(value?.statusMessage ?? '', reason);
      assert.equal((await outcomes.next()).done, true);
      assert.equal(await countRecords(database()), GROUP);
    });

  test('a stream without a whole group ends within seconds when its key is revoked, and stores nothing', async () => {
    await using story = await createBulkStory(database());
    const stream = story.open();
    const responded = responseOf(stream);
    stream.write(linesOf(recordsOf(3)));
    await waitUntil(() => story.clock.waits().includes(CHECK_MS));
    await database().query(sql`update api_key set revoked_at = ${noon}`);
    story.clock.advance(CHECK_MS);
    assert.equal((await responded).statusCode, 401);
    assert.equal(await countRecords(database()), 0);
    stream.on('error', () => {}).destroy();
  });

  test('a group that cannot be stored ends the response with a line that says so', async () => {
    const story = createApiStory(database());
    const { watcherId } = await story.issue('acme');
    let groups = 0;
    const failing: Database = {
      ...database(),
      transaction(work) {
        groups += 1;
        if (groups === 3) throw new Fault('unavailable', 'database: gone');
        return database().transaction(work);
      },
    };
    const options = {
      database: failing,
      clock: story.clock,
      log: silentLog(),
      webhookPolicy: strict,
      limits: {},
    };
    const body = Readable.from([Buffer.from(linesOf(recordsOf(5 * GROUP)))]);
    const answers = await Array.fromAsync(
      await answerLines(options, {
        watcherId,
        body,
        once: undefined,
        inTurn: <T>(work: () => Promise<T>) => work(),
      }),
    );
    const outcomes: Outcome[] = answers
      .join('')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.equal(successes(outcomes), 2 * GROUP);
    assert.deepEqual(outcomes.slice(2 * GROUP), [
      { success: false, statusCode: 503, statusMessage: 'Service Unavailable' },
    ]);
    assert.equal(await countRecords(database()), 2 * GROUP);
  });

  test('a broken stream that is repeated with its key takes effect once, from the first to the last line', async () => {
    await using story = await createBulkStory(database());
    const lines = [...recordsOf(2 * GROUP + 10), { operation: 'create' }];
    const broken = story.open(KEY);
    broken.on('error', () => {});
    broken.write(linesOf(lines.slice(0, GROUP + 1)));
    const outcomes = readOutcomes(await responseOf(broken));
    const first = await outcomes.next();
    broken.destroy();
    const again = await story.send(lines, KEY);
    assert.deepEqual(again[0], first.value);
    assert.deepEqual(
      again.map(({ index }) => index),
      lines.map((_, index) => index),
    );
    assert.equal(successes(again), 2 * GROUP + 10);
    assert.deepEqual(await story.send(lines, KEY), again);
    const records = await story.list();
    assert.deepEqual(
      records.map(({ id }) => id),
      again.flatMap(({ data }) => data?.id ?? []),
    );
  });

  test('the same stream sent twice at once takes effect once', async () => {
    await using story = await createBulkStory(database());
    const lines = recordsOf(3 * GROUP + 5);
    const [one, other] = await Promise.all([story.send(lines, KEY), story.send(lines, KEY)]);
    assert.deepEqual(one, other);
    assert.equal(successes(one), lines.length);
    assert.equal(await countRecords(database()), lines.length);
  });

  test('blank lines and the newline after the last line do not make it a different stream', async () => {
    await using story = await createBulkStory(database());
    const lines = recordsOf(3);
    const first = await story.send(lines, KEY);
    const stream = story.open(KEY);
    stream.end(`\n \r\n${linesOf(lines)}`.trimEnd());
    assert.deepEqual(await Array.fromAsync(readOutcomes(await responseOf(stream))), first);
    assert.equal(await countRecords(database()), lines.length);
  });

  test('a different stream with the same key is refused at the first difference', async () => {
    await using story = await createBulkStory(database());
    const lines = recordsOf(2 * GROUP);
    await story.send(lines, KEY);
    const first = await story.send([recordOf(9_999), ...lines.slice(1)], KEY);
    assert.deepEqual(
      first.map(({ index, statusCode }) => [index, statusCode]),
      [[undefined, 409]],
    );
    for (const changed of [
      [...lines, recordOf(9_999)],
      lines.slice(0, -1),
      lines.with(GROUP, recordOf(9_999)),
    ]) {
      const outcomes = await story.send(changed, KEY);
      assert.equal(successes(outcomes), GROUP);
      const { index, statusCode } = outcomes.at(-1) ?? {};
      assert.deepEqual([outcomes.length, index, statusCode], [GROUP + 1, undefined, 409]);
    }
    assert.equal(await countRecords(database()), 2 * GROUP);
  });

  test('a client that is refused at the beginning of a long body gets the response and can send the body to its end', async () => {
    await using story = await createBulkStory(database());
    await story.send(recordsOf(1), KEY);
    const stream = story.open({ ...KEY, connection: 'keep-alive' });
    const sent = once(stream, 'finish');
    const responded = responseOf(stream);
    // More than the sockets' buffers hold.
    const url = `https://a.example.com/${'x'.repeat(2_000)}`;
    stream.end(linesOf(recordsOf(8_000).map((record) => ({ ...record, webhook_url: url }))));
    const [outcome] = await Array.fromAsync(readOutcomes(await responded));
    assert.equal(outcome?.statusCode, 409);
    await sent;
  });

  test('a watcher may have four open streams. A fifth is refused with 429, and another watcher is served', async () => {
    await using story = await createBulkStory(database());
    const streams = [];
    for (let number = 0; number < 4; number += 1) {
      const stream = story.open();
      stream.write(linesOf(recordsOf(GROUP + 1, number * 2 * GROUP)));
      stream.on('error', () => {});
      streams.push({ stream, response: await responseOf(stream) });
    }
    const [refused] = await story.send(recordsOf(1));
    assert.deepEqual(refused, {
      success: false,
      statusCode: 429,
      statusMessage: '4 streams of this watcher are open, which is the limit',
    });
    assert.equal(
      (
        await story.send(recordsOf(1), {
          authorization: `Bearer ${(await story.issue('other')).key}`,
        })
      )[0]?.success,
      true,
    );
    // A client that hangs up frees its place too.
    streams.pop()?.stream.destroy();
    await waitUntil(async () => (await story.send(recordsOf(1)))[0]?.success);
    for (const { stream, response } of streams) {
      stream.end();
      assert.equal((await Array.fromAsync(readOutcomes(response))).length, GROUP + 1);
    }
  });

  test('a silent stream is ended with a line that says so, and only answered lines are stored', async () => {
    await using story = await createBulkStory(database());
    const stream = story.open({ ...KEY, connection: 'keep-alive' });
    stream.write(linesOf(recordsOf(GROUP + 1)));
    const response = await responseOf(stream);
    const closed = once(response.socket, 'close');
    const outcomes = Array.fromAsync(readOutcomes(response));
    await waitUntil(() => story.clock.waits().includes(CHECK_MS));
    story.clock.advance(SILENCE_MS);
    const answers = await outcomes;
    assert.equal(successes(answers), GROUP);
    assert.deepEqual(answers.slice(GROUP), [SILENT]);
    await closed;
    await waitUntil(async () => (await countConnections(story)) === 0);
    assert.deepEqual(story.clock.waits(), []);
    assert.equal(await countRecords(database()), GROUP);
    assert.equal(await countOpenTransactions(database()), 0);
    // Sent again, the stream continues where it ended.
    assert.equal(successes(await story.send(recordsOf(GROUP + 1), KEY)), GROUP + 1);
    assert.equal(await countRecords(database()), GROUP + 1);
  });

  test('streams that fall silent before the first answer get 408 and free their places', async () => {
    await using story = await createBulkStory(database());
    const responded = [];
    for (let number = 0; number < 4; number += 1) {
      const stream = story.open({ connection: 'keep-alive' });
      stream.write(number === 0 ? '' : linesOf(recordsOf(number)));
      stream.flushHeaders();
      responded.push(responseOf(stream));
    }
    await waitUntil(() => story.clock.waits().filter((ms) => ms === CHECK_MS).length === 4);
    assert.equal((await story.send(recordsOf(1)))[0]?.statusCode, 429);
    story.clock.advance(SILENCE_MS);
    for (const response of await Promise.all(responded)) {
      assert.equal(response.statusCode, 408);
      assert.deepEqual(await Array.fromAsync(readOutcomes(response)), [SILENT]);
    }
    await waitUntil(async () => (await countConnections(story)) === 0);
    assert.equal(await countRecords(database()), 0);
    assert.equal(await countOpenTransactions(database()), 0);
    assert.ok((await story.send(recordsOf(1)))[0]?.success);
  });

  test(`blocks that arrive while ${LOADED} addresses load ring for each one that was answered before`, async () => {
    await using story = await createBulkStory(database());
    const answered: number[] = [];
    const loading = load(story, LOADED, answered);
    const oracle: { hash: string; address: string }[] = [];
    let isLoaded = false;
    void loading.finally(() => {
      isLoaded = true;
    });
    for (let number = 1; !isLoaded || oracle.length === 0; number += 1) {
      // The embedded database doesn't let the sockets run meanwhile.
      await nextTurn();
      // An address that has been answered must match in the next block. The newest answers are the hardest case.
      const mustRing = answered.slice(-50);
      const transfers = mustRing.map((index) => transferOf({ receiver: addressOf(index) }));
      await mine(database(), headerOf(number), transfers);
      oracle.push(...transfers.map(({ txHash, receiver }) => ({ hash: txHash, address: String(receiver) })));
    }
    await loading;
    const rung = await database().query<{ hash: string; address: string }>(sql`
      select '0x' || encode(n.tx_hash, 'hex') as hash, '0x' || encode(w.address, 'hex') as address
      from notification_status n join watched_address w on w.id = n.watched_address_id order by n.id`);
    assert.deepEqual(rung, oracle);
    assert.equal(await countRecords(database()), LOADED);
  });
});

/** Loads addresses 0 … count - 1 and notes each one as soon as its answer arrives. */
async function load(story: BulkStory, count: number, answered: number[]): Promise<void> {
  const stream = story.open();
  stream.end(linesOf(recordsOf(count)));
  for await (const { index, success } of readOutcomes(await responseOf(stream))) {
    assert.ok(success && index !== undefined);
    answered.push(index);
  }
}
