import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { serveDatabase } from '../../src/store/db/socket-server.ts';
import { sql } from '../../src/store/db/sql.ts';
import { endProcess, type FollowerReport, writeHeartbeat } from '../../src/store/deployment/processes.ts';
import { noon } from '../kit/chain-story.ts';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { SECRET } from '../kit/service.ts';
import { chain, chainbell } from './chainbell.ts';

const list = (place: TestDatabase, ...words: string[]) => {
  const env = { ...chain, CHAINBELL_DATABASE_URL: place.url, CHAINBELL_SECRET: SECRET };
  return chainbell(place.dataDir, { ...env, CHAINBELL_DATA_DIR: place.dataDir }, 'processes', ...words);
};
const identity = (id: string, ...roles: string[]) => ({
  ...{ id, roles, version: '0.1.0', host: 'one.example', pid: 7, startedAt: noon, kekIds: [] },
});
const report = (leads: boolean): FollowerReport => ({ leads, state: 'ok', head: 12, problem: undefined });

describe('chainbell processes', () => {
  test('shows who leads, who stands by, and who was stopped or lost, from the database alone', async () => {
    await using place = await createTestDatabase('postgres');
    const empty = await list(place);
    assert.deepEqual([empty.code, empty.out], [0, '']);
    assert.equal(
      empty.err,
      'no process has run on this database; none has the role follower; none has the role delivery; none has the role api\n',
    );
    const database = await place.open();
    await writeHeartbeat(database, identity('aaaa', 'follower', 'api'), report(true));
    await writeHeartbeat(database, identity('bbbb', 'follower'), report(false));
    await writeHeartbeat(database, identity('cccc', 'delivery'), undefined);
    await writeHeartbeat(database, identity('dddd', 'follower'), report(true));
    await endProcess(database, 'cccc', { isFailed: false, error: undefined });
    await writeHeartbeat(database, identity('eeee', 'prices'), undefined);
    await endProcess(database, 'eeee', { isFailed: true, error: 'cannot listen' });
    // The command may take longer than the 10 s after which a process is lost.
    await database.query(sql`update process set seen_at = clock_timestamp() + interval '1 hour'`);
    await database.query(
      sql`update process set seen_at = clock_timestamp() - interval '11 seconds' where id = 'dddd'`,
    );
    const { code, out, err } = await list(place);
    assert.deepEqual([code, err], [0, '2 of 5 known processes run; none has the role delivery\n']);
    await database.query(sql`update process set leads = false where id = 'aaaa'`);
    assert.match((await list(place)).err, /; no follower leads, so none follows the chain\n$/);
    await database.query(sql`update process set leads = true where id = 'aaaa'`);
    assert.match(out, /^PROCESS +ROLES +STATE +VERSION +HOST +PID +STARTED +LAST SEEN +FOLLOWING$/m);
    assert.match(out, /^aaaa +follower,api +running .* leads, head 12$/m);
    assert.match(out, /^bbbb +follower +running .* on standby, head 12$/m);
    assert.match(out, /^cccc +delivery +stopped +0\.1\.0 +one\.example +7 +\S+ +\S+$/m);
    assert.match(out, /^dddd +follower +lost +0\.1\.0 +one\.example +7 +\S+ +\S+$/m);
    assert.match(out, /^eeee +prices +failed .* the start failed: cannot listen$/m);
    const json = JSON.parse((await list(place, '--json')).out) as {
      id: string;
      state: string;
      host: string;
    }[];
    assert.deepEqual(
      json.map(({ id, state, host }) => [id, state, host]),
      [
        ['aaaa', 'running', 'one.example'],
        ['bbbb', 'running', 'one.example'],
        ['cccc', 'stopped', 'one.example'],
        ['dddd', 'lost', 'one.example'],
        ['eeee', 'failed', 'one.example'],
      ],
    );
  });

  test('on the embedded database, a process runs only while it serves the folder, and may be silent for longer', async () => {
    await using place = await createTestDatabase('embedded');
    const stateOf = async () => {
      const [one] = JSON.parse((await list(place, '--json')).out) as { state: string }[];
      return one?.state;
    };
    const database = await place.open();
    const socket = await serveDatabase(database, place.dataDir);
    for (const [seconds, state] of [
      [60, 'lost'],
      [11, 'running'],
    ] as const) {
      await writeHeartbeat(database, identity('aaaa', 'follower', 'delivery', 'api'), report(true));
      await database.query(
        sql`update process set seen_at = clock_timestamp() - ${seconds}::int * interval '1 second'`,
      );
      assert.equal(await stateOf(), state);
    }
    await writeHeartbeat(database, identity('aaaa', 'follower', 'delivery', 'api'), report(true));
    await socket.close();
    await database.close();
    assert.equal(await stateOf(), 'lost', 'the service was killed');
    assert.match((await list(place)).err, /^0 of 1 known processes run; none has the role follower; /);
  });
});
