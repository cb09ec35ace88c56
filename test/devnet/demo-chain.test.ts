import assert from 'node:assert/strict';
import { cpSync, existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, type TestContext } from 'node:test';
import { type DemoChain, openDemoChain } from '../../devnet/demo-chain.ts';
import { clearDemoFolder, type DemoFolder, openDemoFolder, writeDemoNote } from '../../devnet/demo-folder.ts';
import { findBlock } from '../../devnet/wallet.ts';
import type { BlockId } from '../../src/domain/block.ts';
import { commitBlocks } from '../../src/store/blocks/blocks.ts';
import { openDatabase } from '../../src/store/db/open.ts';
import { copyEmbedded } from '../kit/database.ts';
import { sampledTest } from '../kit/sample.ts';

const test = sampledTest(import.meta.url, { shares: 2 });

const options = { preferredPort: 0, chainId: 31337, fresh: false };

/** A stopped demo, created once for all tests because its past takes seconds. Each test uses a copy. */
let left: { folder: DemoFolder; chain: DemoChain; head: BlockId };
before(async () => {
  const folder = openDemoFolder(mkdtempSync(join(tmpdir(), 'chainbell-test-')));
  const chain = await openDemoChain(folder, { ...options, fresh: false });
  left = { folder, chain, head: await headOf(chain) };
  const { genesisTime } = chain;
  writeDemoNote(folder, { apiKey: 'a key', receiverUrl: 'http://127.0.0.1:8090', genesisTime });
  await chain.anvil.stop();
});
after(() => rmSync(left.folder.folder, { recursive: true, force: true }));

function createFolder(context: TestContext): DemoFolder {
  const path = mkdtempSync(join(tmpdir(), 'chainbell-test-'));
  context.after(() => rmSync(path, { recursive: true, force: true }));
  return openDemoFolder(path);
}

/** The files that a stopped demo leaves, except the database. */
function createLeftFolder(context: TestContext): DemoFolder {
  const folder = createFolder(context);
  cpSync(left.folder.folder, folder.folder, { recursive: true });
  return folder;
}

/** Creates the database of a service that had followed the chain up to `tip`. */
async function leaveDatabase(folder: DemoFolder, tip: BlockId): Promise<void> {
  await copyEmbedded(folder.serviceFolder);
  const database = await openDatabase({ url: '', dataDir: folder.serviceFolder });
  const now = new Date();
  const header = { ...tip, parentHash: tip.hash, minedAt: now };
  const commit = { expectedTip: undefined, confirmations: 0, finalizedNumber: 0, now };
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
  const { chain, head } = left;
  assert.equal(chain.continued, undefined);
  assert.match(chain.story, /fresh: there is no earlier demo/);
  const folder = createLeftFolder(context);
  await leaveDatabase(folder, head);

  const second = await open(context, folder);
  assert.equal(second.story, `continuing at block ${head.number}`);
  assert.equal(second.continued?.apiKey, 'a key');
  assert.deepEqual(second.scene, chain.scene);
  assert.deepEqual(await headOf(second), head);
});

test('a demo that is continued again and again keeps its first block, and its time is the machine’s', async (context) => {
  const folder = createLeftFolder(context);
  await leaveDatabase(folder, left.head);
  const genesis: unknown[] = [];
  for (let start = 0; start < 6; start++) {
    const { anvil } = await open(context, folder);
    genesis.push((await findBlock(anvil, 0))?.hash);
    await anvil.rpc('anvil_mine', ['0x1']);
    const mined = Object(await anvil.rpc('eth_getBlockByNumber', ['latest', false]));
    const lateSeconds = Date.now() / 1000 - Number(mined.timestamp);
    assert.ok(Math.abs(lateSeconds) < 120, `mined ${lateSeconds} s from now`);
    await anvil.stop();
  }
  assert.deepEqual(new Set(genesis).size, 1, genesis.join(' '));
});

test('a database whose newest block is not on the chain makes a fresh start, and is removed', async (context) => {
  const folder = createLeftFolder(context);
  await leaveDatabase(folder, { ...left.head, hash: `0x${'ab'.repeat(32)}` });

  const second = await open(context, folder);
  assert.match(second.story, /fresh: the newest block of the database \(\d+\) is not on the chain/);
  assert.equal(second.continued, undefined);
  assert.equal(existsSync(folder.serviceFolder), false);
});

test('a state that anvil cannot load makes a fresh start', async (context) => {
  const folder = createLeftFolder(context);
  writeFileSync(folder.chainStateFile, '{');

  assert.match((await open(context, folder)).story, /starting fresh: .*failed to parse json/);
});

test('a chain without the contracts makes a fresh start', async (context) => {
  const folder = createLeftFolder(context);
  rmSync(folder.chainStateFile);

  assert.equal((await open(context, folder)).story, 'starting fresh: the contracts are gone');
});

test('a fresh start on request forgets the demo, and leaves all other files of the folder alone', async (context) => {
  const folder = createLeftFolder(context);
  const foreign = join(folder.folder, 'somebody-elses.txt');
  writeFileSync(foreign, 'keep');

  const second = await open(context, folder, true);
  assert.equal(second.continued, undefined);
  assert.equal(existsSync(folder.noteFile), false);
  assert.equal(existsSync(foreign), true);
});

test('a second demo on the same folder is refused, and takes nothing from the first', async (context) => {
  const folder = createLeftFolder(context);
  await leaveDatabase(folder, left.head);
  const first = await open(context, folder);

  for (const fresh of [false, true]) await assert.rejects(open(context, folder, fresh), { code: 'conflict' });

  assert.equal(existsSync(folder.noteFile), true);
  assert.equal(await first.anvil.rpc('eth_chainId'), '0x7a69');
});

test('the file with the key can be read by its owner only, also where it was there before', {
  skip: process.platform === 'win32',
}, (context) => {
  const folder = createFolder(context);
  writeFileSync(folder.noteFile, 'old', { mode: 0o644 });
  writeDemoNote(folder, { apiKey: 'a key', receiverUrl: 'http://127.0.0.1:1', genesisTime: 1 });
  assert.equal(statSync(folder.noteFile).mode & 0o777, 0o600);
  clearDemoFolder(folder);
  assert.equal(existsSync(folder.noteFile), false);
});
