/**
 * Commands beside a running service with the embedded database. They are separate processes that use the socket in its folder.
 */
import assert from 'node:assert/strict';
import { readdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { test } from 'node:test';
import { chainbell } from '../cli/chainbell.ts';
import { startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import { type Program, startProgram } from '../kit/program.ts';
import { startReceiver } from '../kit/receiver.ts';
import { CHAIN_ID, freshAddress, SECRET } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const RECORDS = '/api/notifications/watched-addresses';

/** The URL of its API, once it has started. */
async function urlOf(program: Program): Promise<string> {
  const started = () => /"api":"([^"]+)".*"msg":"service.started"/.exec(program.log)?.[1];
  await waitUntil(() => started() !== undefined || program.child.exitCode !== null, {
    describe: 'the service to start',
    timeoutMs: 120_000,
  });
  return started() ?? assert.fail(program.log);
}

test('every command works while the service runs, after it was killed, and when it runs again', async () => {
  await using parts = new AsyncDisposableStack();
  const chain = parts.use(await startChain());
  const place = parts.use(await createTestDatabase('embedded'));
  const receiver = parts.use(await startReceiver());
  const start = () => {
    const program = startProgram({ database: place, rpc: [chain.url], startBlock: 1, receiver });
    parts.defer(async () => {
      program.child.kill('SIGKILL');
      await program.ended;
    });
    return program;
  };
  const env = {
    CHAINBELL_CHAIN_ID: String(CHAIN_ID),
    CHAINBELL_CHAIN_RPC: chain.url,
    CHAINBELL_DATA_DIR: place.dataDir,
    CHAINBELL_SECRET: SECRET,
  };
  const run = async (...words: string[]) => {
    const { code, out, err } = await chainbell(place.dataDir, env, ...words);
    assert.equal(code, 0, `${words.join(' ')}: ${out}${err}`);
    return { out, err };
  };
  const json = async (...words: string[]) => JSON.parse((await run(...words, '--json')).out);

  const program = start();
  const url = await urlOf(program);
  assert.ok((await readdir(place.dataDir)).includes('socket'));

  const { key, watcher_id: id } = await json('keys', 'create', '--watcher', 'acme');
  const list = () => fetch(`${url}${RECORDS}`, { headers: { authorization: `Bearer ${key}` } });
  assert.equal((await list()).status, 200);
  const watch = await fetch(`${url}${RECORDS}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ address: freshAddress(), webhook_url: receiver.url }),
  });
  const { data: record } = (await watch.json()) as { data: { address: `0x${string}` } };
  const paid = await chain.transferNative({ from: chain.accounts[1], to: record.address, valueWei: 5n });
  await receiver.waitFor(1, 60_000);

  const listed = await json('watchers', 'list');
  assert.deepEqual([listed.length, listed[0].id, listed[0].state], [1, id, 'active']);
  assert.match((await run('watchers', 'suspend', 'acme')).err, /^acme is suspended: /);
  assert.equal((await list()).status, 403);
  const shown = await json('watchers', 'show', 'acme');
  assert.deepEqual([shown.state, shown.counts.records, shown.counts.notifications], ['suspended', 1, 1]);
  await run('watchers', 'resume', String(id));
  assert.equal((await list()).status, 200);

  assert.match((await run('verify')).err, /^equal: /m);
  await run('repair', '--from', '1', '--to', '1', '--dry-run');
  assert.match((await run('points', 'explain', paid.hash)).err, /the transaction has no logs/);
  const awards = path.join(place.dataDir, 'awards.ndjson');
  const award = { user: record.address, category: 'trading', points: '1.5', hash: paid.hash };
  await writeFile(awards, `${JSON.stringify({ ...award, created_at: '2026-01-31T12:00:00Z' })}\n`);
  for (const words of [['--dry-run'], [], ['--dry-run']]) await run('points', 'import', awards, ...words);
  assert.match((await run('points', 'explain', paid.hash)).out, /trading/);
  assert.match((await run('status', '--url', url)).out, /^state +ok$/m);
  assert.match((await run('migrate', '--check')).err, /up to date/);
  assert.equal((await json('secrets', 'show', '--watcher', 'acme')).watcher_id, id);
  const several = ['one', 'two', 'three'].map((name) => json('keys', 'create', '--watcher', name));
  await Promise.all([...several, run('verify')]);
  assert.equal((await json('watchers', 'list')).length, 4);

  program.child.kill('SIGKILL');
  await program.ended;
  assert.ok((await readdir(place.dataDir)).includes('socket'), 'a killed service leaves its socket');
  assert.equal((await json('watchers', 'list')).length, 4);

  const again = start();
  await urlOf(again);
  await run('watchers', 'delete', 'acme', '--yes');
  assert.equal((await json('watchers', 'list')).length, 3);
  again.child.kill('SIGTERM');
  await again.ended;
  assert.equal(again.child.exitCode, 0, again.log);
  assert.ok(!(await readdir(place.dataDir)).includes('socket'));
});
