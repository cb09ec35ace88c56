import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { type DemoChain, openDemoChain } from '../../devnet/demo-chain.ts';
import { clearDemoFolder, type DemoFolder, openDemoFolder, writeDemoNote } from '../../devnet/demo-folder.ts';
import { findBlock } from '../../devnet/wallet.ts';
import type { BlockId } from '../../src/core/block.ts';
import { commitBlocks } from '../../src/store/blocks.ts';
import { openDatabase } from '../../src/store/db.ts';
import { migrate } from '../../src/store/migrate.ts';

const options = { preferredPort: 0, chainId: 31337, fresh: false };

function createFolder(context: TestContext): DemoFolder {
  const path = mkdtempSync(join(tmpdir(), 'chainbell-test-'));
  context.after(() => rmSync(path, { recursive: true, force: true }));
  return openDemoFolder(path);
}

/** Leaves the folder as a stopped demo does, but for the database. */
async function leaveChain(folder: DemoFolder, chain: DemoChain): Promise<void> {
  writeDemoNote(folder, { apiKey: 'a key', receiverUrl: 'http://127.0.0.1:8090' });
  await chain.anvil.stop();
}

/** Leaves a database as a service does that had followed up to `tip`. */
async function leaveDatabase(folder: DemoFolder, tip: BlockId): Promise<void> {
  const database = await openDatabase({ url: '', dataDir: folder.serviceFolder });
  await migrate(database);
  const now = new Date();
  const header = { ...tip, parentHash: tip.hash, minedAt: now };
  const commit = { expectedTip: undefined, releasedNumber: tip.number, finalizedNumber: 0, now };
  await commitBlocks(database, { ...commit, blocks: [{ header, proved: true, transfers: [] }] });
  await database.close();
}

async function headOf({ anvil }: DemoChain): Promise<BlockId> {
  const head = await findBlock(anvil, 'latest');
  assert.ok(head !== undefined);
  return head;
}

async function open(context: TestContext, folder: DemoFolder, fresh = false): Promise<DemoChain> {
  const chain = await openDemoChain(folder, { ...options, fresh });
  context.after(() => chain.anvil.stop());
  return chain;
}

test('a demo continues where the one before stopped, with its key and its contracts', async (context) => {
  const folder = createFolder(context);
  const first = await open(context, folder);
  assert.equal(first.continued, undefined);
  assert.match(first.story, /fresh: there is no earlier demo/);
  const head = await headOf(first);
  await leaveChain(folder, first);
  await leaveDatabase(folder, head);

  const second = await open(context, folder);
  assert.equal(second.story, `continuing at block ${head.number}`);
  assert.equal(second.continued?.apiKey, 'a key');
  assert.deepEqual(second.scene, first.scene);
  assert.deepEqual(await headOf(second), head);
});

test('a database whose newest block is not on the chain makes a fresh start, and is removed', async (context) => {
  const folder = createFolder(context);
  const first = await open(context, folder);
  const head = await headOf(first);
  await leaveChain(folder, first);
  await leaveDatabase(folder, { ...head, hash: `0x${'ab'.repeat(32)}` });

  const second = await open(context, folder);
  assert.match(second.story, /fresh: the newest block of the database \(\d+\) is not on the chain/);
  assert.equal(second.continued, undefined);
  assert.equal(existsSync(folder.serviceFolder), false);
});

test('a state that anvil cannot load makes a fresh start', async (context) => {
  const folder = createFolder(context);
  const first = await open(context, folder);
  await leaveChain(folder, first);
  writeFileSync(folder.chainStateFile, '{');

  assert.match((await open(context, folder)).story, /starting fresh: .*failed to parse json/);
});

test('a chain without the contracts makes a fresh start', async (context) => {
  const folder = createFolder(context);
  const first = await open(context, folder);
  await leaveChain(folder, first);
  rmSync(folder.chainStateFile);

  assert.equal((await open(context, folder)).story, 'starting fresh: the contracts are gone');
});

test('a fresh start on request forgets the demo, and leaves all other files of the folder alone', async (context) => {
  const folder = createFolder(context);
  const first = await open(context, folder);
  await leaveChain(folder, first);
  const foreign = join(folder.folder, 'somebody-elses.txt');
  writeFileSync(foreign, 'keep');

  const second = await open(context, folder, true);
  assert.equal(second.continued, undefined);
  assert.equal(existsSync(folder.noteFile), false);
  assert.equal(existsSync(foreign), true);
});

test('a second demo on the same folder is refused, and takes nothing from the first', async (context) => {
  const folder = createFolder(context);
  const first = await open(context, folder);
  writeDemoNote(folder, { apiKey: 'a key', receiverUrl: 'http://127.0.0.1:1' });

  for (const fresh of [false, true]) await assert.rejects(open(context, folder, fresh), { code: 'conflict' });

  assert.equal(existsSync(folder.noteFile), true);
  assert.equal(await first.anvil.rpc('eth_chainId'), '0x7a69');
});

test('the file with the key can be read by its owner only, also where it was there before', {
  skip: process.platform === 'win32',
}, (context) => {
  const folder = createFolder(context);
  writeFileSync(folder.noteFile, 'old', { mode: 0o644 });
  writeDemoNote(folder, { apiKey: 'a key', receiverUrl: 'http://127.0.0.1:1' });
  assert.equal(statSync(folder.noteFile).mode & 0o777, 0o600);
  clearDemoFolder(folder);
  assert.equal(existsSync(folder.noteFile), false);
});
