/**
 * Two consecutive blocks of Cronos, whose nodes list fewer receipts than a block has transactions.
 */
import assert from 'node:assert/strict';
import { createTestDatabase } from '../kit/database.ts';
import { startReceiver } from '../kit/receiver.ts';
import { readRealchain, testWithRealchain } from '../kit/replay.ts';
import {
  chainMethods,
  type Json,
  makeNodeBlock,
  type NodeBlock,
  startScriptedNode,
} from '../kit/scripted-node.ts';
import { createWatcher, startTestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const CHAIN_ID = 31_337;
const FIRST = 68_215;
/** The address that minted a token in the transaction whose receipt is missing from the list. */
const MINTER = '0xd494d1276b7e84da2a502ab3dfc3440a0a241009';
const MINTED = BigInt('0x52b7d2dcc80cd2e4000000');

testWithRealchain(
  'on Cronos, a receipt that is missing from the list is fetched, and the block is held only while no node has it',
  async (folder) => {
    const read = (number: number): NodeBlock => ({
      block: readRealchain(folder, `chains/cronos-${number}/block.json.gz`),
      receipts: readRealchain(folder, `chains/cronos-${number}/receipts.json.gz`),
    });
    const missing = readRealchain<Json & { transactionHash: string }>(
      folder,
      `chains/cronos-${FIRST + 1}/tx-0xc453d4-receipt.json.gz`,
    );
    const blocks = [makeNodeBlock(0), read(FIRST), read(FIRST + 1)];
    await using node = await startScriptedNode(chainMethods(CHAIN_ID, blocks));
    node.methods.eth_getTransactionReceipt = () => null;
    await using database = await createTestDatabase('postgres');
    await using receiver = await startReceiver();
    const chain = { startBlock: FIRST, verify: 'auto', internalTransfers: 'off' } as const;
    const options = { database, rpc: [node.url], receivers: [receiver], chain };
    await using service = await startTestService({ ...options, roles: ['api'] });
    const watcher = await createWatcher(service, 'acme');
    await watcher.watch({ address: MINTER, webhookUrl: receiver.url });
    await service.stop();

    await using follower = await startTestService(options);
    const status = async () =>
      (await (await fetch(`${follower.apiUrl}/status`)).json()) as {
        state: string;
        problem: { message: string } | null;
        cursor: { number: number } | null;
      };
    await waitUntil(async () => (await status()).state === 'holding', { describe: 'the block to be held' });
    const { problem, cursor } = await status();
    assert.equal(cursor?.number, FIRST);
    const problemText = problem?.message ?? '';
    assert.ok(problemText.includes(`no receipt of transaction ${missing.transactionHash} in block 68216`));
    assert.ok(problemText.includes('add another node to chain.rpc'));

    node.methods.eth_getTransactionReceipt = ([hash]) => (hash === missing.transactionHash ? missing : null);
    await waitUntil(() => receiver.requests.length > 0, { describe: 'the webhook' });
    await follower.drained();
    const { state, cursor: stored } = await status();
    assert.deepEqual({ state, number: stored?.number }, { state: 'ok', number: FIRST + 1 });
    assert.equal(receiver.requests.length, 1);
    const webhook = receiver.requests[0]?.json as { hash: string; type: string; receiver: string };
    assert.deepEqual(
      { hash: webhook.hash, type: webhook.type, receiver: webhook.receiver },
      { hash: missing.transactionHash, type: 'TOKEN_TRANSFER', receiver: MINTER },
    );
    assert.match(receiver.requests[0]?.body ?? '', new RegExp(`"amount":\\s*${MINTED}\\b`));
  },
);
