/**
 * What /status says about following while scripted nodes are silent or have not been asked for long.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createStatus } from '../../../src/app/status.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { GAP_MS_MAX } from '../../../src/domain/silence.ts';
import type { Database } from '../../../src/store/db/db.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { createWriteHealth } from '../../../src/store/db/write-health.ts';
import { onSampledDatabase } from '../../kit/each-database.ts';
import { complete, type NodesStage, nodeAt, withNodes } from '../../kit/nodes.ts';
import { decideEmpty, omitting, silenceSecond, TRACE } from '../../kit/tracing-nodes.ts';

/** The returned function reads /status of a process that follows these nodes. */
function statusOf({ nodes, clock, metrics, scripted }: NodesStage, database: Database) {
  const rpc = scripted.map(({ url }) => url).join();
  const config = loadConfig({ env: { CHAINBELL_CHAIN_ID: '1', CHAINBELL_CHAIN_RPC: rpc } });
  const { status } = createStatus({
    ...{ version: '1', config, database, nodes, agreement: nodes.agreement, clock, metrics },
    ...{ proof: undefined, recentStep: () => undefined, onBug: assert.fail },
    writes: createWriteHealth(database, clock),
  });
  return async () => {
    const { state, problem, agreement } = await status();
    return { state, problem, compared: agreement?.internal_transfers.compared };
  };
}

onSampledDatabase(import.meta.url, ({ database }) => {
  test('while one of two tracing nodes is believed alone, the state is degraded and nothing is compared', () => {
    const { [TRACE]: _trace, ...blind } = complete();
    return withNodes([omitting(), omitting(), blind], async (stage) => {
      const read = statusOf(stage, database());
      const isFine = { state: 'ok', problem: null, compared: true };
      await decideEmpty(stage);
      assert.deepEqual(await read(), isFine);
      const since = stage.clock.now().toISOString();
      const repair = await silenceSecond(stage);
      const { state, problem, compared } = await read();
      assert.deepEqual([state, problem?.since, compared], ['degraded', since, false]);
      assert.match(problem?.message ?? '', /^chain\.rpc\[1\] gives no traces, so the other node .* alone/);
      repair();
      await decideEmpty(stage);
      assert.deepEqual(await read(), isFine);
    });
  });

  test('traces are not compared while one of two nodes gives no answer at all', () =>
    withNodes([omitting(), omitting()], async (stage) => {
      const read = statusOf(stage, database());
      const { signal } = new AbortController();
      await decideEmpty(stage);
      assert.equal((await read()).compared, true);
      nodeAt(stage.scripted, 1).setHttp('reset');
      for (let misses = 1; misses < 3; misses += 1) {
        await assert.rejects(stage.nodes.head(signal), { code: 'inconsistent' });
        stage.clock.advance(GAP_MS_MAX);
      }
      await stage.nodes.head(signal);
      assert.equal((await read()).compared, false);
    }));

  test('a node that gave no traces long ago, and was not asked since, is not reported', () => {
    const { [TRACE]: _trace, ...blind } = complete();
    return withNodes([omitting(), omitting(), blind], async (stage) => {
      const read = statusOf(stage, database());
      await silenceSecond(stage);
      assert.equal((await read()).compared, false);
      stage.clock.advance(121_000);
      assert.equal((await read()).compared, true);
    });
  });

  test('after a suspension, the chain stands still only once the nodes have been asked again', () =>
    withNodes([complete(), complete()], async (stage) => {
      const { nodes, clock } = stage;
      const read = statusOf(stage, database());
      await database().query(sql`
        insert into block (number, hash, parent_hash, mined_at, proved, stored_at)
        select number, decode(lpad(to_hex(number), 64, '0'), 'hex'), decode(lpad(to_hex(number + 15), 64, '0'), 'hex'),
          ${clock.now()}::timestamptz - (9 - number) * interval '500 s', true, ${clock.now()}::timestamptz
        from generate_series(0, 9) as number`);
      const { signal } = new AbortController();
      await nodes.head(signal);
      assert.equal((await read()).problem, null);
      clock.advance(86_400_000);
      assert.equal((await read()).problem, null);
      await nodes.head(signal);
      assert.match((await read()).problem?.message ?? '', /^the chain stands still/);
    }));
});
