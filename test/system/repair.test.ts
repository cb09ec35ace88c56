/**
 * Notifications that no receiver would get, nodes that lie, and `chainbell repair`, on a real chain beside the service.
 */
import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { toBytes } from '../../src/core/hex.ts';
import type { Difference } from '../../src/ingest/compare.ts';
import { type Sql, sql } from '../../src/store/sql.ts';
import type { Chain } from '../kit/anvil.ts';
import { chainMethods, type NodeBlock, startScriptedNode, traceMethod } from '../kit/scripted-node.ts';
import { CHAIN_ID, type TestService } from '../kit/service.ts';
import {
  NOTIFICATIONS,
  nodeBlocks,
  openVerifiedChain,
  type Run,
  runOn,
  type VerifiedChain,
  verifyChain,
} from '../kit/verified-chain.ts';

let chain: Chain;
let service: TestService;
let records: VerifiedChain['records'];
let payment: VerifiedChain['payment'];
let split: VerifiedChain['split'];
let last: number;
let story: VerifiedChain;
before(async () => {
  story = await openVerifiedChain();
  ({ chain, service, records, payment, split, last } = story);
});
beforeEach(() => story.restore());
after(() => story[Symbol.asyncDispose]());

const change = (statement: Sql) => service.database.query(statement);
const verify = (options?: Parameters<typeof verifyChain>[1]): Promise<Run> => verifyChain(story, options);

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

/** A node with the whole chain, whose traces are what `lie` makes of them. */
async function startTracingNode(lie: (blocks: NodeBlock[]) => void = () => {}) {
  const blocks = await nodeBlocks(story);
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

/** Something differs at the split payment whichever node is asked first, so that all of them are asked. */
const cancelPart = () =>
  change(sql`
    update notification set state = 'cancelled'
    where kind = 'internal' and tx_hash = ${toBytes(split.hash)} and ordinal = 0`);

test('one node that lies adds no difference to what two others have, and it is named', async () => {
  await cancelPart();
  await using liar = await startTracingNode(omitCalls);
  await using honest = await startTracingNode();
  const { differences, dissents } = await verify({ rpc: [liar.url, honest.url, chain.url] });
  assert.deepEqual(
    differences.map(({ what, block }) => [what, block]),
    [['delivery', split.block]],
  );
  // Of both internal transfers it says that they never were, and it does not say that one is cancelled.
  const { origin } = new URL(liar.url);
  assert.deepEqual(dissents.map((line) => line.slice(0, line.indexOf(': block'))).sort(), [
    `${origin}: only this node says so`,
    `${origin}: only this node says so`,
    `${origin}: this node alone denies it`,
  ]);
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
  assert.ok(dissents.length > 0 && dissents.every((line) => line.startsWith(new URL(liar.url).origin)));
});

test('of two nodes that disagree neither is believed', async () => {
  await cancelPart();
  await using liar = await startTracingNode(omitCalls);
  const { report, differences, dissents } = await verify({ rpc: [liar.url, chain.url] });
  assert.deepEqual([report.outcome, differences, report.undecided.unconfirmed], ['not_compared', [], 3]);
  assert.equal(dissents.length, 3);
  assert.ok(dissents.every((line) => line.includes(': the nodes disagree: block')));
});

test('where too few nodes answer, the blocks count as unconfirmed', async () => {
  const { report, differences } = await verify({ rpc: [chain.url, 'http://127.0.0.1:1'] });
  assert.deepEqual([report.outcome, differences, report.undecided.unconfirmed], ['not_compared', [], last]);
});

test('repair as a process beside the service: a plan that changes nothing, then that plan, then nothing to do', async () => {
  await change(sql`delete from notification where tx_hash = ${toBytes(split.hash)} and ordinal = 1`);
  await change(sql`update notification set state = 'cancelled' where tx_hash = ${toBytes(payment.hash)}`);
  await change(sql`
    update notification set amount = 17, state = 'processed', processed_at = now()
    where tx_hash = ${toBytes(split.hash)} and ordinal = 0`);
  const range = ['repair', '--from', '1', '--to', String(last)];
  const { differences } = await verify();
  assert.equal(differences.length, 3);

  const planned = await runOn(story, ...range, '--dry-run');
  assert.equal(planned.code, 1, planned.err);
  assert.match(
    planned.out,
    /^reschedule \(notification \d+\): block \d+: delivery: .* it is cancelled, but its record/m,
  );
  assert.match(planned.out, /^create and deliver: block \d+: missing: internal 1 of /m);
  assert.match(
    planned.out,
    /^create and deliver \(notification \d+\): block \d+: changed: .* amount 17 is stored/m,
  );
  assert.match(
    planned.err,
    /3 repairs planned, 0 done, 0 differences cannot be repaired\nnothing was changed; /,
  );
  assert.deepEqual((await verify()).differences.map(outline), differences.map(outline));

  const applied = await runOn(story, ...range, '--apply');
  assert.deepEqual([applied.code, applied.out], [0, planned.out], applied.err);
  assert.match(applied.err, /3 repairs planned, 3 done, 0 differences cannot be repaired\n$/);

  const again = await runOn(story, ...range, '--apply', '--json');
  const lines = again.out
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  assert.deepEqual([again.code, lines.length], [1, 2]);
  const { message, id, ...fields } = lines[0];
  // The right one was sent under another id; what was told cannot be called back.
  assert.match(message, /amount 17 is stored, 1 is on the chain/);
  assert.equal(typeof id, 'number');
  assert.deepEqual(fields, {
    ...{ repair: 'cannot repair', difference: 'changed', block: split.block },
    watched_addresses_id: records.receiver,
  });
  const { verify: _, ...counts } = lines[1].summary;
  assert.deepEqual(counts, { planned: 0, repaired: 0, cannot_repair: 1, skipped: 0 });

  await change(sql`delete from notification where tx_hash = ${toBytes(split.hash)} and amount = 17`);
  const healed = await runOn(story, ...range, '--apply');
  assert.deepEqual([healed.code, healed.out], [0, ''], healed.err);
});

const outline = ({ what, block, notification }: Difference) => [what, block, notification];
