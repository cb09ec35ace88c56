/**
 * The program killed (SIGKILL) at each point around its commits: found from outside, by the statements that pass.
 */
import assert from 'node:assert/strict';
import { sql } from '../../src/store/sql.ts';
import { startProgram } from '../kit/program.ts';
import { waitUntil } from '../kit/wait.ts';
import { type Moment, startDatabaseProxy } from './database-proxy.ts';
import { reorg } from './reorgs.ts';
import type { Stage } from './stage.ts';
import type { Story } from './story.ts';

type KillMoment = Moment & { name: string; before?: 'a fork' | 'an unbound database' };

const binding = { statements: ['insert into chain'], before: 'an unbound database' } as const;
const undoing = { before: 'a fork' } as const;

/** Within a transaction what is after one statement is before the next. */
const moments: readonly KillMoment[] = [
  { name: 'before the chain is bound', when: 'asked', ...binding },
  { name: 'after the chain was bound', when: 'answered', ...binding },
  { name: 'with headers stored', statements: ['insert into block'], when: 'answered' },
  { name: 'with notifications stored', statements: ['insert into notification'], when: 'answered' },
  { name: 'with lanes woken', statements: ['insert into block', 'pg_notify'], when: 'answered' },
  { name: 'before the commit of blocks', statements: ['insert into block', 'commit'], when: 'asked' },
  { name: 'after the commit of blocks', statements: ['insert into block', 'commit'], when: 'answered' },
  {
    name: 'with notifications withdrawn',
    statements: ["set state = 'withdrawn'"],
    when: 'answered',
    ...undoing,
  },
  { name: 'with dead blocks removed', statements: ['delete from block'], when: 'answered', ...undoing },
  {
    name: 'before the commit of a fork',
    statements: ['delete from block', 'commit'],
    when: 'asked',
    ...undoing,
  },
  {
    name: 'after the commit of a fork',
    statements: ['delete from block', 'commit'],
    when: 'answered',
    ...undoing,
  },
  {
    name: 'before the commit of webhooks',
    statements: ['insert into delivery_attempt', 'commit'],
    when: 'asked',
  },
  {
    name: 'after the commit of webhooks',
    statements: ['insert into delivery_attempt', 'commit'],
    when: 'answered',
  },
];

/** So many that what the fork takes back was not told yet. */
const CONFIRMATIONS = 3;

export const killStories: readonly Story[] = moments.map((moment) => ({
  name: `kill -9 ${moment.name}`,
  mayRepeat: true,
  chain: { confirmations: CONFIRMATIONS },
  async tell(stage) {
    const { chain, service, payBlock, settled, happened } = stage;
    const paid = await payBlock();
    await chain.mine();
    await settled();
    if (moment.before === 'an unbound database') await service.database.query(sql`delete from chain`);
    await service.stop();
    if (moment.before === 'a fork') {
      await reorg(chain, 2, paid);
      happened.forks += 1;
    }
    await payBlock();
    await payBlock();
    await chain.mine(CONFIRMATIONS);
    await kill(stage, moment);
    happened.injected += 1;
    await stage.restart();
  },
}));

/** Runs the program until the moment. */
async function kill(
  { database, nodes: [node], startBlock, receiver }: Stage,
  moment: KillMoment,
): Promise<void> {
  await using proxy = await startDatabaseProxy(database.url, moment, () => program.child.kill('SIGKILL'));
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
    timeoutMs: 30_000,
  }).finally(() => program.child.kill('SIGKILL'));
  await program.ended;
  assert.equal(program.child.signalCode, 'SIGKILL', program.log);
  if (moment.before !== 'a fork') assert.doesNotMatch(program.log, /chain\.reorg/);
}
