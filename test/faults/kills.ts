/**
 * Kills the program (SIGKILL) at each point around its commits. The statements that pass the proxy show these points.
 */
import assert from 'node:assert/strict';
import { sql } from '../../src/store/db/sql.ts';
import { startProgram } from '../kit/program.ts';
import { waitUntil } from '../kit/wait.ts';
import { type Moment, startDatabaseProxy } from './database-proxy.ts';
import type { NodeFault } from './node-proxy.ts';
import { reorg } from './reorgs.ts';
import type { Stage } from './stage.ts';
import type { Story } from './story.ts';

/** A moment at a statement, or when a block is requested from the node or returned by it. */
type AnyMoment = Moment | { node: 'asked' | 'answered' };
type KillMoment = AnyMoment & { name: string; before?: 'a reorg' | 'an unbound database' };

const binding = { statements: ['insert into chain'], before: 'an unbound database' } as const;
const block = (...then: string[]) => ({ statements: ['insert into block', ...then] });
const counting = { statements: ['update statistics_state', 'commit'] };
const inReorg = (...statements: string[]) => ({ statements, before: 'a reorg' }) as const;

/** Inside a transaction, after one statement is before the next. Statements outside this list write in no story. */
const moments: readonly KillMoment[] = [
  { name: 'before the chain is bound', when: 'asked', ...binding },
  { name: 'after the chain was bound', when: 'answered', ...binding },
  { name: 'while a block is fetched', node: 'asked' },
  { name: 'while a block is proved', node: 'answered' },
  { name: 'before headers are stored', when: 'asked', ...block() },
  { name: 'with headers stored', when: 'answered', ...block() },
  { name: 'with notifications stored', when: 'answered', statements: ['insert into notification ('] },
  { name: 'with held notifications released', when: 'answered', ...block('set release_number = null') },
  { name: 'with what is final noted', when: 'answered', ...block('set finalized_number') },
  { name: 'with lanes woken', when: 'answered', ...block('pg_notify') },
  { name: 'before the commit of blocks', when: 'asked', ...block('commit') },
  { name: 'after the commit of blocks', when: 'answered', ...block('commit') },
  { name: 'with points and pairs undone', when: 'answered', ...inReorg('delete from pair_state') },
  { name: 'with a reorg noted', when: 'answered', ...inReorg('insert into reorg') },
  { name: 'with notifications orphaned', when: 'answered', ...inReorg('update queue q set reorg_id') },
  { name: 'with notifications withdrawn', when: 'answered', ...inReorg('insert into ended (shard_id') },
  { name: 'with orphaned blocks removed', when: 'answered', ...inReorg('delete from block') },
  { name: 'before the commit of a reorg', when: 'asked', ...inReorg('delete from block', 'commit') },
  { name: 'after the commit of a reorg', when: 'answered', ...inReorg('delete from block', 'commit') },
  { name: 'with lanes leased', when: 'answered', statements: ['epoch = epoch + 1'] },
  { name: 'before next visits are noted', when: 'asked', statements: ['set next_due = (', 'commit'] },
  { name: 'after next visits were noted', when: 'answered', statements: ['set next_due = (', 'commit'] },
  { name: 'before webhooks are settled', when: 'asked', statements: ['insert into delivery_attempt'] },
  { name: 'after webhooks were settled', when: 'answered', statements: ['insert into delivery_attempt'] },
  { name: 'before deliveries are counted', when: 'asked', ...counting },
  { name: 'after deliveries were counted', when: 'answered', ...counting },
  { name: 'before lanes are given back', when: 'asked', statements: ['set owner = null', 'commit'] },
  { name: 'after lanes were given back', when: 'answered', statements: ['set owner = null', 'commit'] },
];

/** All writing statements of the program in these stories. A statement that is missing here has no moment above yet. */
const writes: ReadonlySet<string> = new Set([
  ...[
    'insert into chain',
    'insert into block',
    ...[
      'insert into notification',
      'update notification',
      'insert into queue',
      'update queue',
      'delete from queue',
    ],
    ...['insert into ended', 'update ended', 'delete from ended', 'update last_success'],
    'update chain',
  ],
  // The stories have no points or pairs. These block processors only check whether a reorg rolls anything back.
  ...['delete from point', 'delete from point_day', 'delete from point_month', 'update point_day'],
  ...['update point_month', 'delete from accrual_before', 'delete from accrual', 'update accrual'],
  ...['delete from referral', 'delete from swap', 'update swap_volume', 'delete from pair_state'],
  ...['delete from pair_reading', 'update pair', 'delete from block'],
  ...['insert into watcher_queue', 'update watcher_queue'],
  // These stories defer nothing. A reorg only checks.
  ...[
    'delete from deferred_match',
    'update deferred_match',
    'delete from deferred_records',
    'delete from deferred_transfers',
  ],
  ...['update lane', 'insert into delivery_attempt', 'insert into reorg', 'insert into orphaned_block'],
  // Separate statements prune old data, after they have noted how far.
  ...[
    'insert into prune_mark',
    'delete from delivery_attempt_default',
    'delete from notification_default',
    'delete from idempotent_answer',
  ],
  'delete from price_observation',
  ...['insert into delivery_sum', 'insert into record_delivery_sum', 'update statistics_state'],
  ...['insert into receiver_window', 'update receiver_window'],
  ...['delete from delivery_sum', 'delete from record_delivery_sum_default'],
  // Fewer addresses are watched than the address filter needs, so a follower only removes what an earlier one left.
  ...['delete from address_filter', 'delete from address_change'],
  // Heartbeats, and the state of failing receivers.
  ...['insert into process', 'update process', 'delete from process'],
  ...['insert into receiver_failure', 'delete from receiver_failure'],
]);

/** Enough that transfers which the reorg orphans have not been notified yet. */
const CONFIRMATIONS = 3;

export const killStories: readonly Story[] = moments.map((moment) => ({
  name: `kill -9 ${moment.name}`,
  mayRepeat: true,
  chain: { confirmations: CONFIRMATIONS },
  async tell(stage) {
    await prepare(stage, moment);
    await kill(stage, moment);
    stage.happened.injected += 1;
    await stage.restart();
  },
}));

/** The connections to the database break at the moment, and the program keeps running. */
export const breakStories: readonly Story[] = moments
  .filter((moment) => 'statements' in moment)
  .map((moment) => ({
    name: `connections to the database broken ${moment.name}`,
    mayRepeat: true,
    chain: { confirmations: CONFIRMATIONS },
    async tell(stage) {
      const { database, happened } = stage;
      await prepare(stage, moment);
      const before = happened.injected;
      const onMoment = () => {
        happened.injected += 1;
      };
      const proxy = await startDatabaseProxy(database.url, moment, onMoment, { goesOn: true });
      stage.parts.use(proxy);
      await stage.restart(proxy.url);
      await waitUntil(() => happened.injected > before, { describe: 'the moment to come' });
      await stage.settled();
      await stage.service.stop();
      await stage.restart();
    },
  }));

/** Leaves the service stopped, with blocks, payments and other conditions that the moment needs still to process. */
async function prepare({ chain, service, payBlock, settled }: Stage, moment: KillMoment): Promise<void> {
  const paid = await payBlock();
  await chain.mine();
  await settled();
  if (moment.before === 'an unbound database') await service.database.query(sql`delete from chain`);
  await service.stop();
  if (moment.before === 'a reorg') await reorg(chain, 2, paid);
  await payBlock();
  await payBlock();
  await chain.mine(CONFIRMATIONS);
}

/** Runs the program until the moment. */
async function kill(
  { database, nodes: [node], startBlock, receiver }: Stage,
  moment: KillMoment,
): Promise<void> {
  const end = () => program.child.kill('SIGKILL');
  const atStatement: Moment =
    'statements' in moment ? moment : { statements: ['no such one'], when: 'asked' };
  await using proxy = await startDatabaseProxy(database.url, atStatement, end);
  if ('node' in moment) node.inject(atBlock(moment.node, end));
  const { url } = proxy;
  const rpc = [node.url, node.wsUrl];
  const program = startProgram({
    database: { ...database, url },
    rpc,
    startBlock,
    confirmations: CONFIRMATIONS,
    receiver,
  });
  await waitUntil(() => program.child.signalCode !== null || program.child.exitCode !== null, {
    describe: 'the moment to come',
  }).finally(() => program.child.kill('SIGKILL'));
  await program.ended;
  node.mend();
  assert.equal(program.child.signalCode, 'SIGKILL', program.log);
  const unknown = [...proxy.writes()].filter((write) => !writes.has(write));
  assert.deepEqual(unknown, [], 'statements that no moment is known for');
}

/** Calls `end` when a full block is requested, or was returned. */
function atBlock(when: 'asked' | 'answered', end: () => void): NodeFault {
  if (when === 'asked') {
    return {
      async answer({ method, params }) {
        if (method.startsWith('eth_getBlockBy') && params[1] === true) end();
        return undefined;
      },
    };
  }
  return {
    send(response, text) {
      if (!text.includes('"transactions":[{')) return false;
      response.setHeader('content-type', 'application/json').end(text, end);
      return true;
    },
  };
}
