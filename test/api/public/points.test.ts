import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checksumAddress } from '../../../src/core/hex.ts';
import type { Award } from '../../../src/domain/award.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { insertAwards } from '../../../src/store/points/awards.ts';
import { awardOf } from '../../kit/awards.ts';
import { addressOf, alice, bob, carol, hashOf } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { type ApiStory, createApiStory } from '../api-story.ts';

const POINTS = '/api/points';
const NOT_FOUND = { statusCode: 404, statusMessage: 'Points not found' };
const at = (time: string) => ({ awardedAt: new Date(time) });

/** An API at this time, with these awards. */
async function createStory(database: Database, time: string, awards: readonly Award[]) {
  await database.transaction((tx) => insertAwards(tx, awards));
  const story = createApiStory(database);
  story.clock.advance(new Date(time).getTime() - story.clock.now().getTime());
  const ask = (path: string) => story.ask('GET', `${POINTS}/${path}`);
  const get = async (path: string) => {
    const { status, text } = await ask(path);
    assert.equal(status, 200, text);
    return text;
  };
  return { ask, get };
}

/** All entries of a list, page by page, as the link headers lead. */
async function walk(story: ApiStory, first: string): Promise<unknown[]> {
  const entries: unknown[] = [];
  for (let next: string | undefined = first; next !== undefined; ) {
    const { status, json, headers, text } = await story.ask('GET', next);
    assert.equal(status, 200, text);
    assert.ok(Array.isArray(json));
    entries.push(...json);
    next = /^<(.+)>; rel="next"$/.exec(headers.link ?? '')?.[1];
  }
  return entries;
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('leaderboard: users of the month with points, most points first, then by address (spec 4.1)', async () => {
    const { get } = await createStory(database(), '2026-01-20T00:00:00.000Z', [
      awardOf({ user: bob, points: '7.5' }),
      awardOf({ user: bob, points: '0.000000000000000000000000000000000001' }),
      awardOf({ user: carol, points: '-1' }),
      awardOf({ user: alice, points: '10.00' }),
      awardOf({ user: addressOf(2), points: '3' }),
      awardOf({ user: addressOf(1), points: '3', role: 'referrer' }),
      awardOf({ user: addressOf(9), points: '5' }),
      awardOf({ user: addressOf(9), points: '-5', block: undefined }),
      awardOf({ user: addressOf(8), ...at('2025-12-31T23:59:59.999Z') }),
      awardOf({ user: addressOf(8), ...at('2026-02-01T00:00:00.000Z') }),
    ]);
    const expected = [
      `{"user":"${alice}","points":10}`,
      `{"user":"${bob}","points":7.500000000000000000000000000000000001}`,
      `{"user":"${addressOf(1)}","points":3}`,
      `{"user":"${addressOf(2)}","points":3}`,
      `{"user":"${carol}","points":-1}`,
    ];
    assert.equal(await get('leaderboard?month=2026-01'), `[${expected.join()}]`);
    assert.equal(await get('leaderboard?month=2025-12'), `[{"user":"${addressOf(8)}","points":10}]`);
  });

  test("a user's awards of a month: these fields, newest first, points exact, time in ISO 8601", async () => {
    const category = 'стейкинг "\\\n 🪙';
    const huge = `${'1234567890'.repeat(7)}12345678.000000000000000001`;
    const { get } = await createStory(database(), '2026-01-20T00:00:00.000Z', [
      awardOf({ txHash: hashOf(1), points: huge, category }),
      awardOf({ txHash: hashOf(2), ...at('2026-01-31T23:59:59.999Z') }),
      awardOf({ txHash: hashOf(3), points: '-0.5', ...at('2026-01-01T00:00:00.000Z') }),
      awardOf({ txHash: hashOf(4) }),
      awardOf({ txHash: hashOf(5), user: bob }),
      awardOf({ txHash: hashOf(6), ...at('2026-02-01T00:00:00.000Z') }),
      awardOf({ txHash: hashOf(7), ...at('2025-12-31T23:59:59.999Z') }),
    ]);
    const entry = (number: number, points: string, time: string, name = 'trading') =>
      `{"category":${JSON.stringify(name)},"points":${points},"created_at":"${time}","hash":"${hashOf(number)}"}`;
    const expected = [
      entry(2, '10', '2026-01-31T23:59:59.999Z'),
      entry(4, '10', '2026-01-15T12:00:00.000Z'),
      entry(1, huge, '2026-01-15T12:00:00.000Z', category),
      entry(3, '-0.5', '2026-01-01T00:00:00.000Z'),
    ];
    assert.equal(await get(`user?month=2026-01&user=${alice}`), `[${expected.join()}]`);
  });

  test("a user's categories of a month: most points first, then by name", async () => {
    const { get } = await createStory(database(), '2026-01-20T00:00:00.000Z', [
      awardOf({ category: 'staking', points: '1.25' }),
      awardOf({ category: 'staking', points: '1.25', ...at('2026-01-31T23:59:59.999Z') }),
      awardOf({ category: 'bridge', points: '9'.repeat(78) }),
      awardOf({ category: 'b', points: '2.5' }),
      awardOf({ category: 'governance', points: '5', ...at('2025-12-31T23:59:59.999Z') }),
      awardOf({ category: 'referral', points: '5', user: bob }),
    ]);
    const expected = `[{"category":"bridge","points":${'9'.repeat(78)}},{"category":"b","points":2.5},{"category":"staking","points":2.5}]`;
    assert.equal(await get(`user-by-category?month=2026-01&user=${alice}`), expected);
  });

  test('the current month is that of the clock in UTC', async () => {
    const { get, ask } = await createStory(database(), '2026-01-31T23:59:59.999Z', [
      awardOf({ points: '0.1' }),
      awardOf({ points: '0.2', ...at('2026-01-31T23:59:59.999Z') }),
      awardOf({ ...at('2025-12-31T23:59:59.999Z') }),
      awardOf({ ...at('2026-02-01T00:00:00.000Z'), user: bob }),
    ]);
    assert.equal(await get(`user-by-current-month?user=${alice}`), '{"points":0.3}');
    assert.deepEqual((await ask(`user-by-current-month?user=${bob}`)).json, NOT_FOUND);
  });

  test('before the 28th, the same days of last month are compared (spec 4.1)', async () => {
    const { get } = await createStory(database(), '2026-03-19T09:00:00.000Z', [
      awardOf({ points: '10', ...at('2026-03-01T00:00:00.000Z') }),
      awardOf({ points: '5', ...at('2026-03-19T23:59:59.999Z') }),
      awardOf({ points: '100', ...at('2026-03-20T00:00:00.000Z') }),
      awardOf({ points: '9', ...at('2026-02-01T00:00:00.000Z') }),
      awardOf({ points: '3', ...at('2026-02-19T23:59:59.999Z') }),
      awardOf({ points: '100', ...at('2026-02-20T00:00:00.000Z') }),
      awardOf({ points: '100', ...at('2026-01-31T23:59:59.999Z') }),
    ]);
    const period = (month: string) =>
      `"period":{"start":"2026-${month}-01T00:00:00.000Z","end":"2026-${month}-19T23:59:59.999Z"}`;
    assert.equal(
      await get(`vs-last-month?user=${alice}`),
      `{"current":{"points":15,${period('03')}},"lastMonth":{"points":12,${period('02')}},` +
        '"comparison":{"difference":3,"percentageChange":25,"isFullMonthComparison":false}}',
    );
  });

  test('from the 28th on, whole months of any length are compared', async () => {
    const { get } = await createStory(database(), '2024-03-28T00:00:00.000Z', [
      awardOf({ points: '1', ...at('2024-03-31T23:59:59.999Z') }),
      awardOf({ points: '3', ...at('2024-02-29T23:59:59.999Z') }),
      awardOf({ points: '100', ...at('2024-04-01T00:00:00.000Z') }),
      awardOf({ points: '100', ...at('2024-01-31T23:59:59.999Z') }),
    ]);
    assert.equal(
      await get(`vs-last-month?user=${alice}`),
      '{"current":{"points":1,"period":{"start":"2024-03-01T00:00:00.000Z","end":"2024-03-31T23:59:59.999Z"}},' +
        '"lastMonth":{"points":3,"period":{"start":"2024-02-01T00:00:00.000Z","end":"2024-02-29T23:59:59.999Z"}},' +
        '"comparison":{"difference":-2,"percentageChange":-66.67,"isFullMonthComparison":true}}',
    );
  });

  test('a change from zero is 100 percent, and a change from a negative total has the sign of the difference', async () => {
    const cases: [current: string, last: string | undefined, change: number][] = [
      ['7', undefined, 100],
      ['-7', undefined, -100],
      ['0', undefined, 0],
      ['0', '5', -100],
      ['5', '-10', 150],
      ['-15', '-10', -50],
    ];
    const awards = cases.flatMap(([current, last], index) => [
      awardOf({ user: addressOf(index), points: current }),
      ...(last === undefined
        ? []
        : [awardOf({ user: addressOf(index), points: last, ...at('2025-12-01T00:00:00.000Z') })]),
    ]);
    const { ask } = await createStory(database(), '2026-01-20T00:00:00.000Z', awards);
    for (const [index, [, , change]] of cases.entries()) {
      const { json } = await ask(`vs-last-month?user=${addressOf(index)}`);
      const { comparison } = json as { comparison: { percentageChange: number } };
      assert.equal(comparison.percentageChange, change);
    }
  });

  test('without a matching award the answer is 404 in the words of spec 7', async () => {
    const { ask } = await createStory(database(), '2026-01-10T00:00:00.000Z', [
      awardOf({ user: bob, ...at('2025-12-25T00:00:00.000Z') }),
      awardOf({ user: bob, ...at('2025-11-30T23:59:59.999Z'), points: '1' }),
      awardOf({ user: bob, ...at('2025-11-30T23:59:59.999Z'), points: '-1' }),
    ]);
    const paths = [
      'leaderboard?month=2026-01',
      'leaderboard?month=2025-11',
      'leaderboard?month=2026-01&limit=5',
      `user?month=2025-12&user=${alice}`,
      `user?month=2026-01&user=${bob}`,
      `user?month=2026-01&user=${bob}&limit=5`,
      `user-by-category?month=2025-12&user=${alice}`,
      `user-by-category?month=2026-01&user=${bob}`,
      `user-by-current-month?user=${bob}`,
      `vs-last-month?user=${bob}`,
    ];
    for (const path of paths) {
      const { status, json } = await ask(path);
      assert.deepEqual([status, json], [404, NOT_FOUND], path);
    }
    assert.equal(
      (await ask(`user-by-category?month=2025-11&user=${bob}`)).text,
      '[{"category":"trading","points":0}]',
    );
  });

  test('400 names the missing or invalid parameter, the month first (spec 7)', async () => {
    const { ask } = await createStory(database(), '2026-01-10T00:00:00.000Z', []);
    const digits = alice.slice(2);
    const month = 'month=2026-01';
    const cases: [path: string, message: string][] = [
      ['leaderboard', 'Missing month parameter'],
      ['leaderboard?month=', 'Missing month parameter'],
      ['user', 'Missing month parameter'],
      [`user?user=${alice}`, 'Missing month parameter'],
      ['user-by-category', 'Missing month parameter'],
      ['user?month=2026-13', 'Invalid month parameter'],
      [`user?month=2026-00&user=1`, 'Invalid month parameter'],
      ['leaderboard?month=0000-00', 'Invalid month parameter'],
      ['leaderboard?month=0000-01', 'Invalid month parameter'],
      ['leaderboard?month=2026-13', 'Invalid month parameter'],
      ['leaderboard?month=2026-1', 'Invalid month parameter'],
      ['leaderboard?month=2026-01-01', 'Invalid month parameter'],
      ['leaderboard?month=2026-01&month=2026-02', 'Invalid month parameter'],
      ['leaderboard?month[]=2026-01', 'Missing month parameter'],
      [`leaderboard?month=${'9'.repeat(5_000)}`, 'Invalid month parameter'],
      ["leaderboard?month=2026-01'--", 'Invalid month parameter'],
      [`user?${month}`, 'Missing user parameter'],
      [`user?${month}&user=`, 'Missing user parameter'],
      ['user-by-current-month', 'Missing user parameter'],
      ['vs-last-month', 'Missing user parameter'],
      [`user?${month}&user=${digits}`, 'Invalid user parameter'],
      [`user-by-category?${month}&user=0x${digits}0`, 'Invalid user parameter'],
      [`user-by-current-month?user=0x${digits.slice(1)}g`, 'Invalid user parameter'],
      [`vs-last-month?user=${alice}&user=${alice}`, 'Invalid user parameter'],
      [`leaderboard?${month}&limit=0`, 'Invalid limit parameter'],
      [`leaderboard?${month}&limit=1001`, 'Invalid limit parameter'],
      [`leaderboard?${month}&limit=1e2`, 'Invalid limit parameter'],
      [`leaderboard?${month}&cursor=x`, 'Invalid cursor parameter'],
      [`leaderboard?${month}&cursor=1e999999999_${alice}`, 'Invalid cursor parameter'],
      [`user?${month}&user=${alice}&cursor=1_`, 'Invalid cursor parameter'],
      [`user?${month}&user=${alice}&cursor=1_${'9'.repeat(20)}`, 'Invalid cursor parameter'],
    ];
    for (const [path, statusMessage] of cases) {
      const { status, json } = await ask(path);
      assert.deepEqual([status, json], [400, { statusCode: 400, statusMessage }], path);
    }
  });

  test('the address of a user may have any letter case', async () => {
    const { get } = await createStory(database(), '2026-01-20T00:00:00.000Z', [awardOf()]);
    for (const user of [alice.toUpperCase(), checksumAddress(alice), `0X${alice.slice(2)}`])
      assert.equal(await get(`user-by-current-month?user=${user}`), '{"points":10}');
  });

  test('with a limit, link headers lead through pages that contain each entry once', async () => {
    const awards = Array.from({ length: 25 }, (_, index) =>
      awardOf({ user: addressOf(index + 1), points: String(-(index % 3)), txHash: hashOf(index) }),
    );
    const own = Array.from({ length: 25 }, (_, index) =>
      awardOf({ txHash: hashOf(index + 50), ...at(`2026-01-0${(index % 4) + 1}T00:00:00.000Z`) }),
    );
    await database().transaction((tx) => insertAwards(tx, [...awards, ...own]));
    const story = createApiStory(database());
    for (const list of ['leaderboard?month=2026-01', `user?month=2026-01&user=${alice}`]) {
      const whole = await walk(story, `${POINTS}/${list}`);
      assert.ok(whole.length >= 17);
      for (const limit of [1, 4, whole.length, 1_000])
        assert.deepEqual(await walk(story, `${POINTS}/${list}&limit=${limit}`), whole, `limit ${limit}`);
    }
    const { json, headers } = await story.ask(
      'GET',
      `${POINTS}/leaderboard?month=2026-01&cursor=-99_${alice}`,
    );
    assert.deepEqual([json, headers.link], [[], undefined]);
  });

  test('a list of several pieces is complete and in order', async () => {
    await database().query(sql`
      insert into point_month (month, user_address, points, award_count)
      select '2026-01-01', decode(lpad(to_hex(i), 40, '0'), 'hex'), i % 10, 1 from generate_series(1, 9005) as i`);
    await database().query(sql`
      insert into point (rule, version, category, user_address, points, tx_hash, ordinal, role, awarded_at, inputs)
      select 'import', 1, 'bridge', decode(repeat('aa', 20), 'hex'), i, decode(lpad(to_hex(i), 64, '0'), 'hex'), 0, 'user',
        '2026-01-01Z'::timestamptz + i / 10 * interval '1 second', '{}'
      from generate_series(1, 9005) as i`);
    const { get } = await createStory(database(), '2026-01-20T00:00:00.000Z', []);
    const leaders: { user: string; points: number }[] = JSON.parse(await get('leaderboard?month=2026-01'));
    const expected = Array.from({ length: 9005 }, (_, index) => index + 1)
      .filter((number) => number % 10 !== 0)
      .sort((one, other) => (other % 10) - (one % 10) || one - other)
      .map((number) => ({ user: addressOf(number), points: number % 10 }));
    assert.deepEqual(leaders, expected);
    const awards: { points: number }[] = JSON.parse(
      await get(`user?month=2026-01&user=0x${'aa'.repeat(20)}`),
    );
    assert.deepEqual(
      awards.map(({ points }) => points),
      Array.from({ length: 9005 }, (_, index) => 9005 - index),
    );
  });
});
