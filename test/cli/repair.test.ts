import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { insertChain } from '../../src/store/blocks/blocks.ts';
import { sql } from '../../src/store/db/sql.ts';
import { mine, watchAddress } from '../kit/chain-story.ts';
import { createTestDatabase } from '../kit/database.ts';
import {
  chainMethods,
  makeAddress,
  makeHash,
  makeNodeBlock,
  startScriptedNode,
} from '../kit/scripted-node.ts';
import { waitUntil } from '../kit/wait.ts';
import { chain, chainbell, startChainbell } from './chainbell.ts';

const range = ['--from', '1', '--to', '2'];

test('without exactly one of --dry-run and --apply it exits with 64 and advises --dry-run', async () => {
  for (const words of [range, [...range, '--dry-run', '--apply']]) {
    const { code, out, err } = await chainbell(tmpdir(), chain, 'repair', ...words);
    assert.deepEqual([code, out], [64, ''], words.join(' '));
    assert.match(err, /Start with --dry-run/);
  }
});

test('--allow-double-credit with --dry-run, which repairs nothing, exits with 64', async () => {
  const words = [...range, '--dry-run', '--allow-double-credit'];
  const { code, out, err } = await chainbell(tmpdir(), chain, 'repair', ...words);
  assert.deepEqual([code, out], [64, '']);
  assert.match(err, /--allow-double-credit needs --apply/);
});

test('a missing or invalid range exits with 64', async () => {
  for (const words of [
    ['--dry-run'],
    ['--from', '1', '--dry-run'],
    ['--from', '9', '--to', '8', '--dry-run'],
    ['--from', 'x', '--to', '8', '--dry-run'],
  ]) {
    const { code, out } = await chainbell(tmpdir(), chain, 'repair', ...words);
    assert.deepEqual([code, out], [64, ''], words.join(' '));
  }
});

test('an embedded database without blocks has nothing to repair', async () => {
  await using place = await createTestDatabase('embedded');
  const env = { ...chain, CHAINBELL_DATA_DIR: place.dataDir };
  const empty = await chainbell(place.dataDir, env, 'repair', ...range, '--apply');
  assert.deepEqual([empty.code, empty.out], [0, ''], empty.err);
  assert.match(empty.err, /nothing to compare\n0 repairs planned, 0 done/);
});

const DIFFERENCES = 150;
const LOCK = 4711;

for (const [name, signal, code, message] of [
  ['fails', undefined, 69, /\nchainbell: database: .*\n$/],
  ['is interrupted', 'SIGINT', 75, /\nchainbell: interrupted, 100 repaired\. To repair the rest, .*\n$/],
] as const)
  test(`a repair that ${name} in its second transaction counts what the first one repaired`, async (t) => {
    await using place = await createTestDatabase('postgres');
    const database = await place.open();
    if (database.isDistributed === true) return t.skip('a distributed table can have no trigger');
    const block = makeNodeBlock(1, { transactions: DIFFERENCES });
    await insertChain(database, 31_337, undefined);
    await watchAddress(database, { address: makeAddress(2) });
    const [hash, parentHash, now] = [makeHash(0, 1, 0), makeHash(0, 0, 0), new Date()];
    const minedAt = new Date(1_700_000_001_000);
    await mine(database, { number: 1, hash, parentHash, minedAt }, [], { now });
    await database.script(`
      create function wait_in_second() returns trigger language plpgsql as $$
      begin
        if (select count(*) from notification) > 100 then perform pg_advisory_xact_lock(${LOCK}); end if;
        return null;
      end $$;
      create trigger wait_in_second after insert on notification for each row execute function wait_in_second()`);
    await using node = await startScriptedNode(chainMethods(31_337, [makeNodeBlock(0), block]));
    const env = {
      ...{ ...chain, CHAINBELL_CHAIN_RPC: node.url, CHAINBELL_CHAIN_VERIFY: 'off' },
      CHAINBELL_CHAIN_INTERNAL_TRANSFERS: 'off',
      ...{ CHAINBELL_DATABASE_URL: place.url, CHAINBELL_SECRET: Buffer.alloc(32, 7).toString('base64') },
    };
    const words = ['--from', '1', '--to', '1', '--apply', '--json'];
    const ended = await database.transaction(async (tx) => {
      await tx.query(sql`select pg_advisory_xact_lock(${LOCK})`);
      const run = startChainbell(place.dataDir, env, 'repair', ...words);
      const find = async () =>
        (
          await database.query<{ pid: number }>(sql`
            select pid from pg_locks where locktype = 'advisory' and objid = ${LOCK} and not granted`)
        )[0];
      const { pid } = await waitUntil(find, { describe: 'the second transaction' });
      if (signal !== undefined) run.process.kill(signal);
      await database.query(sql`select pg_terminate_backend(${pid})`);
      return run.ended;
    });
    assert.equal(ended.code, code, ended.err);
    assert.match(ended.err, /\n150 repairs planned, 100 done, .*\n50 not done\. Run the command again\n/);
    assert.match(ended.err, message);
    const lines = ended.out.trimEnd().split('\n');
    assert.equal(lines.length, DIFFERENCES + 1);
    const { verify: _, ...counts } = JSON.parse(lines.at(-1) ?? '').summary;
    const none = { cannot_repair: 0, held_back: 0, skipped: 0, unknown: 0 };
    assert.deepEqual(counts, { planned: 150, repaired: 100, ...none });
  });
