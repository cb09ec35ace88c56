/**
 * `chainbell verify` on a real node and a real database: what is stored is equal to the chain, and nothing that is changed
 * by hand stays unseen. The service runs meanwhile.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { encodeCall } from '../../devnet/contracts.ts';
import type { ConfigOverrides } from '../../src/config/load.ts';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { type Address, type Hash, toBytes } from '../../src/core/hex.ts';
import { type Difference, nothingUndecided } from '../../src/ingest/compare.ts';
import type { VerifyOptions, VerifyReport } from '../../src/ingest/verify.ts';
import type { Sql } from '../../src/store/sql.ts';
import { sql } from '../../src/store/sql.ts';
import { runVerification } from '../../src/verification.ts';
import { chainbell } from '../cli/chainbell.ts';
import { type Chain, startChain } from '../kit/anvil.ts';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import {
  chainMethods,
  type NodeBlock,
  RpcError,
  startScriptedNode,
  traceMethod,
} from '../kit/scripted-node.ts';
import {
  CHAIN_ID,
  createWatcher,
  freshAddress,
  SECRET,
  startTestService,
  type TestService,
  testConfig,
} from '../kit/service.ts';

const parts = new AsyncDisposableStack();
let chain: Chain;
let place: TestDatabase;
let service: TestService;
/** Watches the receiver for coin and tokens, and the payer for tokens only. */
let records: { receiver: string; payer: string };
let receiver: Address;
let payer: Address;
/** The block and transaction of a plain payment to the receiver, and of a split one with two internal transfers to him. */
let payment: { block: number; hash: Hash };
let split: { block: number; hash: Hash };
let last: number;

/** Coin by a payment, 2 + 1 wei by the split; 5 units of a token from the payer, whose minting counts too. */
const NOTIFICATIONS = 1 + 2 + 1 + 2;

before(async () => {
  chain = parts.use(await startChain());
  place = parts.use(await createTestDatabase('postgres'));
  service = parts.use(
    await startTestService({
      database: place,
      rpc: [chain.url],
      roles: ['follower', 'api'],
      chain: { startBlock: 1 },
    }),
  );
  payer = chain.accounts[0];
  receiver = freshAddress();
  const watcher = await createWatcher(service, 'acme');
  const webhookUrl = 'https://one.example/hook';
  records = {
    receiver: (await watcher.watch({ address: receiver, webhookUrl })).id,
    payer: (await watcher.watch({ address: payer, webhookUrl, watchCoin: false })).id,
  };
  const paid = await chain.transferNative({ from: payer, to: receiver, valueWei: 7n });
  payment = { block: paid.blockNumber, hash: paid.hash };
  const splitter = await chain.deploy('Splitter');
  const input = encodeCall({ contract: 'Splitter', method: 'split', values: [[receiver, receiver]] });
  const parted = await chain.execute({ from: payer, to: splitter, valueWei: 3n, input });
  split = { block: parted.blockNumber, hash: parted.hash };
  const token = await chain.deploy('DemoToken', 'Verify', 'VER', 18);
  await chain.mintToken(token, { to: payer, amount: 5n });
  await chain.transferToken(token, { from: payer, to: receiver, amount: 5n });
  last = (await chain.head()).number;
  await service.inSync(chain);
  // Long enough before the blocks that nobody doubts their order.
  await change(
    sql`update watched_address set created_at = created_at - interval '1 hour', updated_at = created_at - interval '1 hour'`,
  );
  for (const table of tables) await service.database.script(`create table kept_${table} as table ${table}`);
});
beforeEach(async () => {
  for (const table of tables) {
    await service.database.script(
      `delete from ${table}; insert into ${table} overriding system value select * from kept_${table}`,
    );
  }
});
after(() => parts.disposeAsync());

const tables = ['block', 'watched_address', 'notification', 'chain', 'lane'];
const change = (statement: Sql) => service.database.query(statement);
const hour = sql`interval '1 hour'`;

test('what was followed is equal to the chain: blocks, proof and every notification', async () => {
  const { report, differences } = await verify();
  assert.deepEqual(differences, []);
  assert.deepEqual(report, reportOf({ range: { from: 1, to: last } }));
});

test('a notification that is gone is missing', async () => {
  await change(sql`delete from notification where tx_hash = ${toBytes(split.hash)} and ordinal = 1`);
  const { report, differences } = await verify();
  const expected = {
    watchedAddressId: records.receiver,
    txHash: split.hash,
    kind: 'internal',
    ordinal: 1,
    id: undefined,
  };
  assert.deepEqual(differences.map(outline), [['missing', split.block, expected]]);
  assert.match(
    differences[0]?.message ?? '',
    new RegExp(`^block ${split.block}: missing: internal 1 of ${split.hash}`),
  );
  assert.deepEqual([report.outcome, report.notifications], ['different', NOTIFICATIONS - 1]);
});

for (const [field, value] of [
  ['amount', sql`amount = amount + 1`],
  ['sender', sql`sender = receiver`],
  ['receiver', sql`receiver = null`],
  ['token', sql`token = sender`],
  ['block', sql`block_number = block_number + 1000, created_at = created_at + ${hour}`],
] as const) {
  test(`a notification with another ${field} is told`, async () => {
    await change(sql`update notification set ${value} where tx_hash = ${toBytes(payment.hash)}`);
    const { differences } = await verify();
    assert.deepEqual(
      differences.map(({ what, block }) => [what, block]),
      [['changed', payment.block]],
    );
    assert.match(differences[0]?.message ?? '', new RegExp(`${field} .* is stored, .* is on the chain$`));
  });
}

test('an invented notification is unexpected, whatever transfer it claims', async () => {
  const invent = (fields: { txHash: Hash; record: string }) =>
    change(sql`
      insert into notification (shard_id, lane_id, watched_address_id, watcher_id, kind, tx_hash, ordinal, sender, receiver,
        amount, token, block_number, state, next_attempt_at, created_at)
      select shard_id, lane_id, ${fields.record}, watcher_id, kind, ${toBytes(fields.txHash)}, ordinal, sender, receiver,
        amount, token, block_number, 'waiting', now(), created_at
      from notification where tx_hash = ${toBytes(payment.hash)} and watched_address_id = ${records.receiver}`);
  const txHash: Hash = `0x${'5'.repeat(64)}`;
  await invent({ txHash, record: records.receiver });
  // A transfer that happened, told to a record that does not want coin.
  await invent({ txHash: payment.hash, record: records.payer });
  const { report, differences } = await verify();
  const own = { kind: 'transaction', ordinal: 0 };
  assert.deepEqual(
    new Set(
      differences.map(({ what, block, notification }) => {
        assert.ok(notification?.id !== undefined);
        const { id: _, ...place } = notification;
        return [what, block, place];
      }),
    ),
    new Set([
      ['unexpected', payment.block, { watchedAddressId: records.receiver, txHash, ...own }],
      ['unexpected', payment.block, { watchedAddressId: records.payer, txHash: payment.hash, ...own }],
    ]),
  );
  assert.equal(report.notifications, NOTIFICATIONS);
});

test('a stored block of another hash, another parent or no proof is told, and one that is not stored', async () => {
  const other = toBytes(`0x${'5'.repeat(64)}`);
  await change(sql`update block set hash = ${other} where number = ${payment.block}`);
  await change(sql`update block set parent_hash = ${other} where number = ${split.block}`);
  await change(sql`update block set proved = false where number = ${last}`);
  await change(sql`delete from block where number = ${last - 1}`);
  const { report, differences } = await verify();
  assert.deepEqual(
    new Set(differences.map(({ what, block }) => [what, block])),
    new Set([
      ['hash', payment.block],
      ['hash', split.block],
      ['not_stored', last - 1],
      ['proved', last],
    ]),
  );
  assert.equal(report.blocks, last - 2);
});

test('what changes while it is compared is a fork on its way, and no difference', async () => {
  const { hash } = await blockAt(payment.block);
  await change(
    sql`update block set hash = ${toBytes(`0x${'5'.repeat(64)}`)} where number = ${payment.block}`,
  );
  const { report, differences } = await verify({
    async onWait() {
      await change(sql`update block set hash = ${toBytes(hash)} where number = ${payment.block}`);
    },
  });
  assert.deepEqual([report.outcome, differences], ['reorganised', []]);
});

test('a block that its node changes its mind about is a fork on its way, and no difference', async () => {
  const blocks = await Promise.all(Array.from({ length: last + 1 }, (_, number) => nodeBlockAt(number)));
  const stored = blocks[last] ?? (await nodeBlockAt(last));
  const hash = `0x${'5'.repeat(64)}`;
  blocks[last] = {
    ...{ block: { ...stored.block, hash }, traces: [] },
    receipts: stored.receipts.map((receipt) => ({ ...receipt, blockHash: hash })),
  };
  await using node = await startScriptedNode(chainMethods(CHAIN_ID, blocks));
  const settings = { verify: 'off', internalTransfers: 'off' } as const;
  const onWait = async () => {
    blocks[last] = stored;
  };
  const { report, differences } = await verify({ rpc: node.url, settings, onWait });
  assert.deepEqual([report.outcome, differences], ['reorganised', []]);
});

test('nodes that go away meanwhile end it: what they had not given yet is not told as not served', async () => {
  const blocks = await Promise.all(Array.from({ length: last + 1 }, (_, number) => nodeBlockAt(number)));
  blocks.splice(payment.block, 1);
  await using node = await startScriptedNode(chainMethods(CHAIN_ID, blocks));
  const settings = { verify: 'off', internalTransfers: 'off' } as const;
  const away = () => {
    throw new RpcError(-32_000, 'shutting down');
  };
  const onWait = async () => {
    for (const name of Object.keys(node.methods)) node.methods[name] = away;
  };
  await assert.rejects(verify({ rpc: node.url, settings, onWait }), {
    name: 'Fault',
    code: 'unavailable',
    message: /shutting down/,
  });
});

test('a record counts from the block after its making; which of two at one moment was first is not known', async () => {
  await change(sql`delete from notification where watched_address_id = ${records.receiver}`);
  await change(
    sql`update watched_address set created_at = now() + ${hour}, updated_at = now() + ${hour} where id = ${records.receiver}`,
  );
  const young = await verify();
  assert.deepEqual([young.report, young.differences], [reportOf({ notifications: 2 }), []]);
  await change(sql`
    update watched_address set created_at = b.stored_at, updated_at = b.stored_at
    from block b where b.number = ${last} and id = ${records.receiver}`);
  const unsure = await verify({ from: last, to: last });
  assert.deepEqual([unsure.report.undecided.record_new, unsure.differences], [1, []]);
});

test('a notification that was made before its record is unexpected', async () => {
  await change(
    sql`update watched_address set created_at = now() + ${hour}, updated_at = now() + ${hour} where id = ${records.payer}`,
  );
  const { differences } = await verify();
  assert.deepEqual(
    differences.map(({ what, notification }) => [what, notification?.watchedAddressId]),
    [
      ['unexpected', records.payer],
      ['unexpected', records.payer],
    ],
  );
});

test('what a record wanted before it was changed or deleted is not known, but what is stored must have happened', async () => {
  await change(
    sql`update watched_address set address = ${toBytes(freshAddress())}, updated_at = now() where id = ${records.receiver}`,
  );
  await change(sql`delete from watched_address where id = ${records.payer}`);
  const { report, differences } = await verify();
  assert.deepEqual(differences, []);
  assert.deepEqual(
    report,
    reportOf({ notifications: 0, undecided: { record_changed: 4, record_deleted: 2 } }),
  );
  await change(
    sql`update notification set amount = amount + 1 where watched_address_id = ${records.payer} and block_number = ${last}`,
  );
  assert.deepEqual(
    (await verify()).differences.map(({ what, block }) => [what, block]),
    [['changed', last]],
  );
});

test('a record that was changed after the block may not have watched what is missing', async () => {
  await change(sql`delete from notification where watched_address_id = ${records.payer}`);
  await change(sql`update watched_address set updated_at = now() where id = ${records.payer}`);
  const { report, differences } = await verify();
  assert.deepEqual(
    [report, differences],
    [reportOf({ notifications: 4, undecided: { record_changed: 2 } }), []],
  );
});

test('what settings keep from a record is not missing, and what they let through must be there', async () => {
  await change(sql`
    update watched_address set direction = 'in', min_amount = 3, tokens = jsonb_build_object(${'5'.repeat(40)}::text, '0')
    where id = ${records.receiver}`);
  // Of the split one, 2 wei are too little and 1 wei too; of the token there is none on the list.
  await change(sql`
    delete from notification where watched_address_id = ${records.receiver} and tx_hash <> ${toBytes(payment.hash)}`);
  const { report, differences } = await verify();
  assert.deepEqual([report, differences], [reportOf({ notifications: 3 }), []]);
  await change(sql`delete from notification where tx_hash = ${toBytes(payment.hash)}`);
  assert.deepEqual(
    (await verify()).differences.map(({ what, block }) => [what, block]),
    [['missing', payment.block]],
  );
});

test('what settings keep from a record and is stored all the same is unexpected, unless they came later', async () => {
  await change(sql`update watched_address set direction = 'out' where id = ${records.receiver}`);
  const early = await verify();
  assert.deepEqual(
    early.differences.map(({ what }) => what),
    Array(4).fill('unexpected'),
  );
  await change(sql`update watched_address set updated_at = now() where id = ${records.receiver}`);
  const late = await verify();
  assert.deepEqual(
    [late.report, late.differences],
    [reportOf({ notifications: 2, undecided: { record_changed: 4 } }), []],
  );
});

test('what may have been deleted by the retention is not missing', async () => {
  const age = sql`interval '91 days'`;
  await change(sql`update block set stored_at = stored_at - ${age}`);
  await change(sql`update notification set created_at = created_at - ${age}`);
  await change(
    sql`update watched_address set created_at = created_at - ${age}, updated_at = updated_at - ${age}`,
  );
  await change(sql`delete from notification where watched_address_id = ${records.payer}`);
  const { report, differences } = await verify();
  assert.deepEqual([report, differences], [reportOf({ notifications: 4, undecided: { pruned: 2 } }), []]);
});

test('what was told of an orphaned block stays, and is not compared; a withdrawn one is not there', async () => {
  const earlier = sql`created_at = created_at - interval '1 minute'`;
  await change(
    sql`update notification set tx_hash = ${toBytes(`0x${'5'.repeat(64)}`)}, state = 'processed', ${earlier} where tx_hash = ${toBytes(split.hash)} and ordinal = 0`,
  );
  await change(
    sql`update notification set state = 'withdrawn' where tx_hash = ${toBytes(split.hash)} and ordinal = 1`,
  );
  const { report, differences } = await verify();
  assert.equal(report.undecided.dead_fork, 1);
  assert.deepEqual(
    differences.map(outline).map(([what, block]) => [what, block]),
    [
      ['missing', split.block],
      ['missing', split.block],
    ],
  );
});

test('a transaction that was mined again with another amount, and not told, is a difference', async () => {
  await change(sql`
    update notification set amount = 6, state = 'processed', created_at = created_at - interval '1 minute'
    where tx_hash = ${toBytes(payment.hash)}`);
  const { differences } = await verify();
  assert.deepEqual(
    differences.map(({ what, block, repairs }) => [what, block, repairs]),
    [['changed', payment.block, undefined]],
  );
  assert.match(differences[0]?.message ?? '', /amount 6 is stored, 7 is on the chain$/);
});

for (const [fate, fields, message] of [
  ['cancelled beside its record', sql`state = 'cancelled'`, /it is cancelled, but its record exists/],
  ['that waits until the year 9999', sql`next_attempt_at = '9999-12-31'`, /it is scheduled for 9999-12-31T/],
  ['that waits for ever', sql`next_attempt_at = 'infinity'`, /it is scheduled for 9999-12-31T/],
  [
    'that is scheduled a day late',
    sql`retry_count = 1, next_attempt_at = now() + interval '1 day'`,
    /after 1 failures it is due within 1 minutes/,
  ],
  [
    'that is held for ever',
    sql`state = 'held', release_number = 1000000000000`,
    /it is held until block 10{12},/,
  ],
  [
    'that is held although it was released',
    sql`state = 'held', release_number = 1`,
    /which has its confirmations/,
  ],
  ['that is held without a reason', sql`state = 'held'`, /it is held without a reason/],
  ['that is held for its turn, which it has', sql`state = 'held', turn = 1`, /held for strict order, but/],
  ['in a queue that does not exist', sql`lane_id = 4242`, /its delivery queue 4242 does not exist/],
  ['whose removal is announced', sql`revision = 1`, /its removal is announced/],
  [
    'with the block after its own',
    sql`block_number = block_number + 1`,
    /block \d+ is stored, \d+ is on the chain/,
  ],
] as const) {
  test(`a notification ${fate} is found`, async () => {
    await change(sql`update notification set ${fields} where tx_hash = ${toBytes(payment.hash)}`);
    const { differences } = await verify();
    const what = fate === 'with the block after its own' ? 'changed' : 'delivery';
    assert.deepEqual(
      differences.map((one) => [one.what, one.block]),
      [[what, payment.block]],
    );
    assert.match(differences[0]?.message ?? '', message);
  });
}

test('a queue that is never due is found by each notification that waits in it', async () => {
  await change(sql`update lane set next_due = null`);
  const { differences } = await verify();
  assert.deepEqual(
    differences.map(({ what }) => what),
    Array(NOTIFICATIONS).fill('delivery'),
  );
  assert.match(differences[0]?.message ?? '', /is never due, and no worker has leased it/);
});

test('without traces internal transfers are not compared, without proof its flag is not', async () => {
  const { report, differences } = await verify({ settings: { internalTransfers: 'off', verify: 'off' } });
  assert.deepEqual(differences, []);
  assert.deepEqual(
    report,
    reportOf({ notifications: NOTIFICATIONS - 2, undecided: { not_traced: 2, proof_off: last } }),
  );
});

test('a range beyond what is stored is compared as far as it goes', async () => {
  await change(sql`update chain set start_number = 2`);
  const { report } = await verify({ from: 0, to: last + 10 });
  assert.deepEqual(
    report,
    reportOf({
      blocks: last - 1,
      notifications: NOTIFICATIONS - 1,
      range: { from: 0, to: last + 10 },
      undecided: { before_start: 2, after_tip: 10 },
    }),
  );
  const above = await verify({ from: last + 5, to: last + 6 });
  assert.deepEqual([above.report.blocks, above.report.undecided.after_tip], [0, 2]);
  assert.equal(above.report.outcome, 'not_compared');
  const below = await verify({ from: 0, to: 1 });
  assert.deepEqual([below.report.blocks, below.report.undecided.before_start], [0, 2]);
});

test('an end of the range that is not given lies where the other one does, at least', async () => {
  const above = await verify({ from: last + 5 });
  assert.deepEqual(
    [above.report.range, above.report.outcome, above.report.undecided.after_tip],
    [{ from: last + 5, to: last + 5 }, 'not_compared', 1],
  );
  const below = await verify({ to: 0 });
  assert.deepEqual(
    [below.report.range, below.report.outcome, below.report.undecided.before_start],
    [{ from: 0, to: 0 }, 'not_compared', 1],
  );
});

test('how far it is is told after each batch, up to the last block', async () => {
  const { progress } = await verify();
  assert.deepEqual(progress.at(-1), { done: last, total: last, differences: 0 });
  const places = progress.map(({ done }) => done);
  assert.deepEqual(
    places,
    [...new Set(places)].sort((one, other) => one - other),
  );
});

test('a block with more records than are compared at once is counted, and the others are compared', async () => {
  await change(sql`
    insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url, created_at, updated_at)
    select shard_id, gen_random_uuid(), watcher_id, lane_id, address, watch_coin, watch_token, webhook_url, created_at, updated_at
    from watched_address, generate_series(1, 100000) where id = ${records.receiver}`);
  const { report, differences } = await verify();
  assert.deepEqual(differences, []);
  // The payment, the split one and the token.
  assert.deepEqual([report.blocks, report.notifications, report.undecided.too_many], [last - 3, 1, 3]);
});

test('a block that no node proves is told, one that no node has is not compared, and the others are', async () => {
  const blocks = await Promise.all(Array.from({ length: last + 1 }, (_, number) => nodeBlockAt(number)));
  const told = (number: number) => blocks[number]?.receipts[0] ?? {};
  // A receipt without its logs breaks its root.
  told(last).logs = [];
  const isGone = ({ block }: NodeBlock) => Number(block.number) === payment.block;
  const kept = blocks.filter((one) => !isGone(one));
  await using node = await startScriptedNode({
    ...chainMethods(CHAIN_ID, kept),
    debug_traceBlockByHash: traceMethod(kept),
  });
  const { report, differences } = await verify({ rpc: node.url });
  assert.deepEqual(
    differences.map(({ what, block }) => [what, block]),
    [['not_proved', last]],
  );
  assert.match(differences[0]?.message ?? '', /could not be proved: .*its receipts root does not hold/);
  assert.deepEqual([report.blocks, report.undecided.not_served], [last - 2, 1]);
});

/** A node with the whole chain, whose traces are what `lie` makes of them. */
async function startTracingNode(lie: (blocks: NodeBlock[]) => void = () => {}) {
  const blocks = await Promise.all(Array.from({ length: last + 1 }, (_, number) => nodeBlockAt(number)));
  lie(blocks);
  return startScriptedNode({
    ...chainMethods(CHAIN_ID, blocks),
    debug_traceBlockByHash: traceMethod(blocks),
  });
}

/** The split payment has no internal transfers. No hash covers that. */
function omitCalls(blocks: NodeBlock[]): void {
  const own = blocks[split.block];
  assert.ok(own !== undefined);
  const [trace] = own.traces as { result: { calls?: unknown } }[];
  assert.ok(trace?.result.calls !== undefined);
  delete trace.result.calls;
}

test('one node that lies is no difference where two others have what is stored, and it is named', async () => {
  await using liar = await startTracingNode(omitCalls);
  await using honest = await startTracingNode();
  const { report, differences, dissents } = await verify({ rpc: [liar.url, honest.url, chain.url] });
  assert.deepEqual(differences, []);
  assert.equal(report.outcome, 'equal');
  assert.deepEqual(
    dissents.map((line) => line.split(': ').slice(0, 2)),
    Array(2).fill([new URL(liar.url).origin, 'only this node says so']),
  );
});

test('what two of three nodes have counts, although the first one has what is stored', async () => {
  await using liar = await startTracingNode(omitCalls);
  await using honest = await startTracingNode();
  await change(
    sql`delete from notification where kind = 'internal' and tx_hash = ${toBytes(split.hash)} and ordinal = 0`,
  );
  const { differences, dissents } = await verify({ rpc: [honest.url, liar.url, chain.url] });
  assert.deepEqual(
    differences.map(({ what, block }) => [what, block]),
    [['missing', split.block]],
  );
  assert.equal(dissents.length, 2);
  assert.ok(dissents.every((line) => line.startsWith(new URL(liar.url).origin)));
});

test('of two nodes that disagree neither is believed', async () => {
  await using liar = await startTracingNode(omitCalls);
  const { report, differences, dissents } = await verify({ rpc: [liar.url, chain.url] });
  assert.deepEqual([report.outcome, differences, report.undecided.unconfirmed], ['not_compared', [], 2]);
  assert.match(dissents[0] ?? '', /the nodes disagree: block/);
});

test('where too few nodes answer, the blocks count as unconfirmed', async () => {
  const { report, differences } = await verify({ rpc: [chain.url, 'http://127.0.0.1:1'] });
  assert.deepEqual([report.outcome, differences, report.undecided.unconfirmed], ['not_compared', [], last]);
});

/** The command as a process, on the database that the service uses meanwhile. */
const runChainbell = (...words: string[]) =>
  chainbell(
    place.dataDir,
    {
      ...{ CHAINBELL_CHAIN_ID: String(CHAIN_ID), CHAINBELL_CHAIN_RPC: chain.url },
      ...{ CHAINBELL_DATABASE_URL: place.url, CHAINBELL_SECRET: SECRET },
    },
    ...words,
  );

test('repair as a process beside the service: a plan that changes nothing, then that plan, then nothing to do', async () => {
  await change(sql`delete from notification where tx_hash = ${toBytes(split.hash)} and ordinal = 1`);
  await change(sql`update notification set state = 'cancelled' where tx_hash = ${toBytes(payment.hash)}`);
  await change(sql`
    update notification set amount = 17, state = 'processed', processed_at = now()
    where tx_hash = ${toBytes(split.hash)} and ordinal = 0`);
  const range = ['repair', '--from', '1', '--to', String(last)];
  const { differences } = await verify();
  assert.equal(differences.length, 3);

  const planned = await runChainbell(...range, '--dry-run');
  assert.equal(planned.code, 1, planned.err);
  assert.match(
    planned.out,
    /^reschedule \(notification \d+\): block \d+: delivery: .* it is cancelled, but its record/m,
  );
  assert.match(planned.out, /^create and deliver: block \d+: missing: internal 1 of /m);
  assert.match(
    planned.out,
    /^cannot repair \(notification \d+\): block \d+: changed: .* amount 17 is stored/m,
  );
  assert.match(
    planned.err,
    /2 repairs planned, 0 done, 1 differences cannot be repaired\nnothing was changed; /,
  );
  assert.deepEqual((await verify()).differences.map(outline), differences.map(outline));

  const applied = await runChainbell(...range, '--apply');
  assert.deepEqual([applied.code, applied.out], [1, planned.out], applied.err);
  assert.match(applied.err, /2 repairs planned, 2 done, 1 differences cannot be repaired\n$/);

  const again = await runChainbell(...range, '--apply', '--json');
  const lines = again.out
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  assert.deepEqual([again.code, lines.length], [1, 2]);
  const { message, id, ...fields } = lines[0];
  assert.match(message, /amount 17 is stored, 1 is on the chain/);
  assert.equal(typeof id, 'number');
  assert.deepEqual(fields, {
    ...{ repair: 'cannot repair', difference: 'changed', block: split.block },
    watched_addresses_id: records.receiver,
  });
  const { verify: _, ...counts } = lines[1].summary;
  assert.deepEqual(counts, { planned: 0, repaired: 0, cannot_repair: 1, skipped: 0 });

  await change(
    sql`update notification set amount = 1 where tx_hash = ${toBytes(split.hash)} and ordinal = 0`,
  );
  const healed = await runChainbell(...range, '--apply');
  assert.deepEqual([healed.code, healed.out], [0, ''], healed.err);
});

test('as a process: 0 and a summary when equal, 1 and a line for each difference when not', async () => {
  const run = (...words: string[]) => runChainbell('verify', ...words);
  const equal = await run('--json');
  assert.equal(equal.code, 0, equal.err);
  const { outcome, from, to, blocks, notifications, differences, not_comparable } = JSON.parse(
    equal.out,
  ).summary;
  assert.deepEqual(
    { outcome, from, to, blocks, notifications, differences },
    {
      ...{ outcome: 'equal', from: 1, to: last, blocks: last },
      ...{ notifications: NOTIFICATIONS, differences: 0 },
    },
  );
  assert.equal(not_comparable.pruned, 0);
  await change(sql`update notification set amount = 8 where tx_hash = ${toBytes(payment.hash)}`);
  const words = ['--from', String(payment.block), '--to', String(payment.block)];
  const shown = await run(...words);
  assert.equal(shown.code, 1, shown.err);
  assert.match(
    shown.out,
    /^block \d+: changed: transaction 0 of 0x\w+ for \S+: amount 8 is stored, 7 is on the chain\n$/,
  );
  assert.match(
    shown.err,
    /different: blocks \d+ to \d+, 1 compared, 0 notifications equal, 1 differences\nwhat to do: docs\/operations.md, Verifying\n$/,
  );
  const nothing = await run('--from', String(last + 5));
  assert.deepEqual([nothing.code, nothing.out], [69, '']);
  assert.match(nothing.err, /^not comparable, after tip: 1\nnot compared: blocks \d+ to \d+, 0 compared/);
  const [line = '', summary = ''] = (await run('--json', ...words)).out.split('\n');
  const { message, ...fields } = JSON.parse(line);
  assert.match(message, /amount 8 is stored/);
  assert.deepEqual(fields, {
    ...{ difference: 'changed', block: payment.block, watched_addresses_id: records.receiver },
    ...{ hash: payment.hash, kind: 'transaction', ordinal: 0, id: fields.id },
  });
  assert.equal(typeof fields.id, 'number');
  assert.equal(JSON.parse(summary).summary.outcome, 'different');
  await change(sql`
    insert into notification (shard_id, lane_id, watched_address_id, watcher_id, kind, tx_hash, ordinal, sender, amount,
      block_number, state, next_attempt_at, created_at)
    select shard_id, lane_id, watched_address_id, watcher_id, kind, tx_hash, i, sender, amount, block_number, state, now(), now()
    from notification, generate_series(1, 1000) as i where tx_hash = ${toBytes(payment.hash)}`);
  const many = await run('--json', ...words);
  const lines = many.out.trimEnd().split('\n');
  assert.equal(lines.length, 1_000 + 1);
  assert.equal(JSON.parse(lines.at(-1) ?? '').summary.differences, 1_001);
});

type Progress = Parameters<VerifyOptions['onProgress']>[0];
type Run = { report: VerifyReport; differences: Difference[]; dissents: string[]; progress: Progress[] };

/** Verifies the range with a clock that does not wait. */
async function verify(
  options: {
    from?: number;
    to?: number;
    rpc?: string | string[];
    settings?: ConfigOverrides['chain'];
    onWait?: () => Promise<void>;
  } = {},
): Promise<Run> {
  const { from, to, rpc = chain.url, settings = {}, onWait = async () => {} } = options;
  const differences: Difference[] = [];
  const dissents: string[] = [];
  const progress: Progress[] = [];
  const clock: Clock = { ...systemClock(), wait: onWait };
  const report = await runVerification(testConfig({ database: place, rpc: [rpc].flat(), chain: settings }), {
    ...{ from, to, clock, signal: new AbortController().signal },
    onDifference: (difference) => differences.push(difference),
    onDissent: (dissent) => dissents.push(`${dissent.node}: ${dissent.message}`),
    onProgress: (one) => progress.push(one),
  });
  return { report, differences, dissents, progress };
}

const outline = ({ what, block, notification }: Difference) => [what, block, notification];

/** A report of all blocks and notifications as equal, but for `parts`. */
function reportOf({
  undecided,
  ...rest
}: Partial<Omit<VerifyReport, 'undecided'>> & {
  undecided?: Partial<VerifyReport['undecided']>;
}): VerifyReport {
  return {
    ...{
      outcome: 'equal',
      range: { from: 1, to: last },
      blocks: last,
      notifications: NOTIFICATIONS,
      ...{ swaps: 0, awards: 0, notCompared: [] },
      differences: 0,
      dissents: 0,
    },
    ...rest,
    undecided: { ...nothingUndecided, ...undecided },
  };
}

const quantity = (number: number) => `0x${number.toString(16)}`;

async function blockAt(number: number): Promise<NodeBlock['block'] & { hash: Hash }> {
  return (await chain.rpc('eth_getBlockByNumber', [quantity(number), true])) as NodeBlock['block'] & {
    hash: Hash;
  };
}

async function nodeBlockAt(number: number): Promise<NodeBlock> {
  const receipts = await chain.rpc('eth_getBlockReceipts', [quantity(number)]);
  // Nobody traces the genesis block.
  const traces =
    number === 0
      ? []
      : await chain.rpc('debug_traceBlockByNumber', [quantity(number), { tracer: 'callTracer' }]);
  return { block: await blockAt(number), receipts: receipts as NodeBlock['receipts'], traces };
}
