/**
 * A follower that stands by, with a node that pushes its heads.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createElections } from '../../src/app/elections.ts';
import { startService } from '../../src/app/service.ts';
import { silentLog } from '../../src/core/log.ts';
import { createSessionKeeper } from '../../src/store/db/session-keeper.ts';
import { sql } from '../../src/store/db/sql.ts';
import { startChain } from '../kit/anvil.ts';
import { createTestClock } from '../kit/clock.ts';
import { createTestDatabase } from '../kit/database.ts';
import { testConfig } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

test('a standby tries to lead every 500 ms, also while its node pushes heads', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const place = parts.use(await createTestDatabase('postgres'));
  const database = await place.open();
  const sessions = createSessionKeeper(database, {});
  parts.defer(() => sessions.close());
  const leader = createElections(sessions);
  assert.ok((await leader.follower()).isLeader);

  const clock = createTestClock(new Date());
  let isConnected = false;
  const log = {
    ...silentLog(),
    debug(fields: object, event?: string) {
      isConnected ||= event === 'node.websocket' && Object(fields).state === 'connected';
    },
  };
  const config = testConfig({ database: place, rpc: [chain.url, chain.wsUrl] });
  const service = await startService(config, { log, roles: ['follower'], clock });
  parts.defer(() => service.stop());
  await waitUntil(() => isConnected);
  // Only the follower waits so briefly. The first wait may have begun before the node pushed heads.
  const hasTried = () => clock.waits().includes(500);
  for (let count = 0; count < 3; count += 1) {
    await waitUntil(hasTried);
    clock.advance(500);
  }
  await leader.resign();
  const leads = async () => {
    if (hasTried()) clock.advance(500);
    const locks = await database.query(sql`
      select from pg_locks where locktype = 'advisory' and classid = ${0x6362_0004} and objid = 1 and granted
        and database = (select oid from pg_database where datname = current_database())`);
    return locks.length > 0;
  };
  await waitUntil(leads);
});
