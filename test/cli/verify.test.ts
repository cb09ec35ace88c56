import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createProgressLines } from '../../src/cli/verify.ts';
import { insertChain } from '../../src/store/blocks/blocks.ts';
import { headerOf, mine } from '../kit/chain-story.ts';
import { createTestClock } from '../kit/clock.ts';
import { createTestDatabase } from '../kit/database.ts';
import { sampledTest } from '../kit/sample.ts';
import { chainMethods, makeHash, makeNodeBlock, startScriptedNode } from '../kit/scripted-node.ts';
import { chain, chainbell, startChainbell } from './chainbell.ts';

const test = sampledTest(import.meta.url);

const CHAINBELL_SECRET = Buffer.alloc(32, 7).toString('base64');

test('invalid block numbers, or block numbers in the wrong order, exit with 64', async () => {
  for (const words of [
    ['--from', 'x'],
    ['--to', '-1'],
    ['--from', '1.5'],
    ['--from', '9', '--to', '8'],
    ['--fron', '1'],
  ]) {
    const { code, out, err } = await chainbell(tmpdir(), chain, 'verify', ...words);
    assert.deepEqual([code, out], [64, ''], words.join(' '));
    assert.notEqual(err, '');
  }
});

test('a long comparison prints its progress every ten seconds', () => {
  const clock = createTestClock();
  const lines: string[] = [];
  const onProgress = createProgressLines(clock, { write: (text) => lines.push(text) });
  for (let done = 1; done <= 25; done += 1) {
    clock.advance(1_000);
    onProgress({ done, total: 100, uncompared: done < 15 ? 0 : done - 14, differences: 3 });
  }
  assert.deepEqual(lines, [
    ...['10 of 100 blocks, 3 differences\n', '20 of 100 blocks, 6 not compared, 3 differences\n'],
  ]);
});

test('a database without blocks is reported as having nothing to compare', async () => {
  await using place = await createTestDatabase('embedded');
  const env = { ...chain, CHAINBELL_DATA_DIR: place.dataDir };
  const { code, out, err } = await chainbell(place.dataDir, env, 'verify', '--json');
  assert.equal(code, 0, err);
  const { outcome, from, to, blocks } = JSON.parse(out).summary;
  assert.deepEqual({ outcome, from, to, blocks }, { outcome: 'equal', from: null, to: null, blocks: 0 });
  assert.match(err, /nothing to compare/);
});

test('an unavailable database or unavailable nodes exit with 69', async () => {
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  await insertChain(database, 31_337, undefined);
  await mine(database, headerOf(1), []);
  const away = 'postgres://chainbell@127.0.0.1:1/chainbell';
  for (const CHAINBELL_DATABASE_URL of [away, place.url]) {
    const env = { ...chain, CHAINBELL_SECRET, CHAINBELL_DATABASE_URL };
    const { code, out, err } = await chainbell(place.dataDir, env, 'verify');
    assert.deepEqual([code, out], [69, ''], err);
  }
});

test('an interrupted verify exits with 75 and prints that it was interrupted', async () => {
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  await insertChain(database, 31_337, undefined);
  await mine(database, headerOf(1), []);
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    await using node = await startScriptedNode();
    const urls = { CHAINBELL_CHAIN_RPC: node.url, CHAINBELL_DATABASE_URL: place.url };
    const run = startChainbell(place.dataDir, { ...chain, CHAINBELL_SECRET, ...urls }, 'verify');
    node.setHttp(() => {
      run.process.kill(signal);
      return 'hang';
    });
    const { code, out, err } = await run.ended;
    assert.deepEqual({ code, out, err }, { code: 75, out: '', err: 'chainbell: interrupted\n' });
  }
});

test('an interrupted comparison does not report equality, even if all blocks so far are equal', async () => {
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  const blocks = [1, 2, 3].map((number) => makeNodeBlock(number, { transactions: 0 }));
  await insertChain(database, 31_337, undefined);
  for (const number of [1, 2, 3]) {
    const [hash, parentHash] = [makeHash(0, number, 0), makeHash(0, number - 1, 0)];
    await mine(
      database,
      { number, hash, parentHash, minedAt: new Date(1_700_000_000_000 + number * 1000) },
      [],
    );
  }
  const methods = chainMethods(31_337, blocks);
  await using node = await startScriptedNode(methods);
  const urls = { CHAINBELL_CHAIN_RPC: node.url, CHAINBELL_DATABASE_URL: place.url };
  const env = { ...chain, CHAINBELL_SECRET, ...urls, CHAINBELL_CHAIN_VERIFY: 'off' };
  const run = startChainbell(place.dataDir, env, 'verify');
  node.methods = {
    ...methods,
    eth_getBlockByNumber(params) {
      // At the second block, the first one is compared already or is the next to be compared.
      if (params[0] === '0x2') run.process.kill('SIGINT');
      return methods.eth_getBlockByNumber?.(params);
    },
  };
  const { code, out, err } = await run.ended;
  assert.deepEqual([code, out], [75, ''], err);
  assert.match(err, /^chainbell: interrupted$/m);
});

test('a database of another chain, or with an older schema, exits with 78', async () => {
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  await insertChain(database, 1, undefined);
  const env = { ...chain, CHAINBELL_SECRET, CHAINBELL_DATABASE_URL: place.url };
  const foreign = await chainbell(place.dataDir, env, 'verify');
  assert.equal(foreign.code, 78, foreign.err);
  assert.match(foreign.err, /the database belongs to chain 1, but chain.id is 31337/);
  await database.script('delete from migration');
  const older = await chainbell(place.dataDir, env, 'verify');
  assert.equal(older.code, 78, older.err);
  assert.match(older.err, /the schema lacks 0001_\S+\.sql.*: run chainbell migrate/);
});

test('without an embedded database, verify exits with 78 and creates none', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-cli-'));
  try {
    const none = await chainbell(folder, { ...chain, CHAINBELL_DATA_DIR: folder }, 'verify');
    assert.equal(none.code, 78, none.err);
    assert.match(none.err, /there is no database/);
    assert.deepEqual(await readdir(folder), []);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
