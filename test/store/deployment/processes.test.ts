import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sql } from '../../../src/store/db/sql.ts';
import {
  endProcess,
  type FollowerReport,
  listProcesses,
  type ProcessIdentity,
  removeFormerProcesses,
  writeHeartbeat,
} from '../../../src/store/deployment/processes.ts';
import { noon } from '../../kit/chain-story.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';

const LOST_MS = 10_000;
const processOf = (id: string, parts: Partial<ProcessIdentity> = {}): ProcessIdentity => ({
  ...{ id, roles: ['follower'], version: '1.2.3', host: 'one', pid: 7, startedAt: noon, kekIds: ['a1'] },
  ...parts,
});
const report: FollowerReport = {
  ...{ leads: true, state: 'holding', head: 9 },
  problem: { message: 'no node answers', since: noon },
};

onSampledDatabase(import.meta.url, ({ database }) => {
  const age = (id: string, seconds: number) =>
    database().query(sql`
      update process set seen_at = clock_timestamp() - ${seconds}::integer * interval '1 second' where id = ${id}`);
  const ids = async () => (await listProcesses(database())).map(({ id }) => id).sort();

  test('a heartbeat stores the identity of the process and its follower state, and the next one increments the count', async () => {
    await writeHeartbeat(database(), processOf('a'), report);
    await writeHeartbeat(database(), processOf('b', { roles: ['api'] }), undefined);
    await writeHeartbeat(database(), processOf('a'), { ...report, state: 'ok', problem: undefined });
    const [first, second] = await listProcesses(database());
    assert.ok(first !== undefined && second !== undefined);
    const { seenAt: _seenAt, ageMs, ...rest } = first;
    assert.deepEqual(rest, {
      ...processOf('a'),
      ...{ beat: 2, isStopped: false, isFailed: false, error: undefined, writeFailures: [], failingWork: [] },
      follower: { leads: true, state: 'ok', head: 9, problem: undefined },
    });
    assert.ok(ageMs >= 0 && ageMs < 60_000, String(ageMs));
    assert.deepEqual([second.id, second.beat, second.follower], ['b', 1, undefined]);
    await writeHeartbeat(database(), processOf('a'), report);
    assert.deepEqual((await listProcesses(database()))[0]?.follower, report);
    const odd = 'NUL \0 and half a pair \ud83d';
    const stored = 'NUL \ufffd and half a pair \ufffd';
    await writeHeartbeat(
      database(),
      processOf('a'),
      { ...report, problem: { message: odd, since: noon } },
      {
        writeFailures: [{ part: 'delivery', message: odd, since: noon }],
      },
    );
    const [withOdd] = await listProcesses(database());
    assert.deepEqual(
      [withOdd?.follower?.problem?.message, withOdd?.writeFailures[0]?.message],
      [stored, stored],
      'a node’s text',
    );
    const failures = [{ part: 'delivery', message: 'no space left', since: noon }];
    const work = [
      { work: 'statistics', since: noon, isBug: true },
      { work: 'retention', since: noon, isBug: false },
    ];
    await writeHeartbeat(database(), processOf('a'), report, { writeFailures: failures, failingWork: work });
    const [third] = await listProcesses(database());
    assert.deepEqual([third?.writeFailures, third?.failingWork], [failures, work]);
    for (const list of [
      'null',
      '[null, 7]',
      '[{"work": "x", "part": "y", "message": "z"}]',
      '{"since": 1}',
    ]) {
      await database().query(
        sql`update process set failing_work = ${list}::jsonb, write_failures = ${list}::jsonb`,
      );
      const [odd] = await listProcesses(database());
      assert.deepEqual([odd?.writeFailures, odd?.failingWork], [[], []], list);
    }
  });

  test('a process that shuts down is marked as stopped, and as failed after a bug or a failed start, with a further heartbeat', async () => {
    for (const [isFailed, error] of [
      [false, undefined],
      [true, undefined],
      [true, 'http.port: 80 is in use'],
    ] as const) {
      const id = `${isFailed} ${error}`;
      await writeHeartbeat(database(), processOf(id), report);
      await endProcess(database(), id, { isFailed, error });
      const stored = (await listProcesses(database())).find((one) => one.id === id);
      assert.deepEqual(
        [stored?.isStopped, stored?.isFailed, stored?.error, stored?.beat],
        [true, isFailed, error, 2],
      );
    }
  });

  test('stopped and silent processes are deleted once the same host has a successor, others after a day', async () => {
    for (const id of ['lost', 'stopped', 'living', 'old', 'me'])
      await writeHeartbeat(database(), processOf(id), undefined);
    await writeHeartbeat(database(), processOf('elsewhere', { host: 'two' }), undefined);
    await writeHeartbeat(database(), processOf('other role', { roles: ['api'] }), undefined);
    for (const id of ['lost', 'elsewhere', 'other role']) await age(id, 11);
    await endProcess(database(), 'stopped', { isFailed: false, error: undefined });
    await age('old', 90_000);
    await age('me', 90_000);
    await removeFormerProcesses(database(), processOf('me'), LOST_MS);
    assert.deepEqual(await ids(), ['elsewhere', 'living', 'me', 'other role']);
    await age('elsewhere', 86_401);
    await removeFormerProcesses(database(), processOf('me'), LOST_MS);
    assert.deepEqual(await ids(), ['living', 'me', 'other role']);
  });

  test('a long problem message is cut, so that the row stays small', async () => {
    const problem = { message: 'x'.repeat(100_000), since: noon };
    await writeHeartbeat(database(), processOf('a'), { ...report, problem });
    const [row] = await database().query<{ bytes: number }>(
      sql`select pg_column_size(p.*)::integer as bytes from process p`,
    );
    assert.ok(row !== undefined && row.bytes < 2_000, String(row?.bytes));
  });
});
