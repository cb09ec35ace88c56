/**
 * Notifications that no receiver would get, nodes that lie, and `chainbell repair`, on a real chain beside the service.
 */
import assert from 'node:assert/strict';
import type { Difference } from '../../src/audit/compare.ts';
import { describe } from '../../src/cli/verify.ts';
import { toBytes } from '../../src/core/hex.ts';
import { sql } from '../../src/store/db/sql.ts';
import { sampledTest } from '../kit/sample.ts';
import { chainMethods, type NodeBlock, startScriptedNode, traceMethod } from '../kit/scripted-node.ts';
import { CHAIN_ID } from '../kit/service.ts';
import { NOTIFICATIONS, useVerifiedChain } from '../kit/verified-chain.ts';

const test = sampledTest(import.meta.url);

const { chain, records, payment, split, last, change, verify, run, start, nodeBlocks } =
  await useVerifiedChain();

for (const [fate, fields, message] of [
  [
    'cancelled beside its record',
    sql`state = 'cancelled'`,
    /it is cancelled, but its watched address exists/,
  ],
  ['that waits until the year 9999', sql`next_attempt_at = '9999-12-31'`, /it is scheduled for 9999-12-31T/],
  ['that waits for ever', sql`next_attempt_at = 'infinity'`, /it is scheduled for 9999-12-31T/],
  [
    'that is scheduled a day late',
    sql`retry_count = 1, next_attempt_at = now() + interval '1 day'`,
    /after 1 failure it is due within 1 minute$/,
  ],
  [
    'that is held for ever',
    sql`state = 'held', release_number = 1000000000000`,
    /it is held until block 10{12},/,
  ],
  ['that is held without a reason', sql`state = 'held'`, /it is held without a reason/],
  [
    'that is held for its turn, which it has',
    sql`state = 'held', sequence = 1`,
    /held for strict order, but/,
  ],
  ['in a queue that does not exist', sql`lane_id = 4242`, /its delivery queue 4242 does not exist/],
  ['whose removal is announced', sql`revision = 1`, /its removal is announced/],
  [
    'with the block after its own',
    sql`block_number = block_number + 1`,
    /block \d+ is stored, \d+ is on the chain/,
  ],
] as const) {
  test(`a notification ${fate} is found`, async () => {
    await change(sql`update notification_status set ${fields} where tx_hash = ${toBytes(payment.hash)}`);
    const { differences } = await verify();
    const kind = fate === 'with the block after its own' ? 'changed' : 'delivery';
    assert.deepEqual(
      differences.map((one) => [one.kind, one.block]),
      [[kind, payment.block]],
    );
    assert.match(differences[0]?.message ?? '', message);
  });
}

test('a queue that is never due is reported for each notification that waits in it', async () => {
  await change(sql`update lane set next_due = null`);
  const { differences } = await verify();
  assert.deepEqual(
    differences.map(({ kind }) => kind),
    Array(NOTIFICATIONS).fill('delivery'),
  );
  assert.match(differences[0]?.message ?? '', /is never due, and no worker has leased it/);
});

/** A node with the whole chain, whose traces are what `lie` makes of them. */
async function startTracingNode(lie: (blocks: NodeBlock[]) => void = () => {}) {
  const blocks = await nodeBlocks();
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

/** Makes the split payment differ whichever node is first, so that verify asks all nodes. */
const cancelPart = () =>
  change(sql`
    update notification_status set state = 'cancelled'
    where kind = 'internal' and tx_hash = ${toBytes(split.hash)} and ordinal = 0`);

test('one node that lies adds no difference to those of two others, and is named', async () => {
  await cancelPart();
  await using liar = await startTracingNode(omitCalls);
  await using honest = await startTracingNode();
  const { differences, dissents } = await verify({ rpc: [liar.url, honest.url, chain.url] });
  assert.deepEqual(
    differences.map(({ kind, block }) => [kind, block]),
    [['delivery', split.block]],
  );
  // It denies both internal transfers, and does not report the cancelled one.
  const { origin } = new URL(liar.url);
  assert.deepEqual(dissents.map((line) => line.slice(0, line.indexOf(': block'))).sort(), [
    `${origin}: only this node does not have this difference`,
    `${origin}: only this node has this difference`,
    `${origin}: only this node has this difference`,
  ]);
});

test('two of three nodes decide, even if the first one agrees with the database', async () => {
  await using liar = await startTracingNode(omitCalls);
  await using honest = await startTracingNode();
  await change(
    sql`delete from notification_status where kind = 'internal' and tx_hash = ${toBytes(split.hash)} and ordinal = 0`,
  );
  const { differences, dissents } = await verify({ rpc: [honest.url, liar.url, chain.url] });
  assert.deepEqual(
    differences.map(({ kind, block }) => [kind, block]),
    [['missing', split.block]],
  );
  assert.ok(dissents.length > 0 && dissents.every((line) => line.startsWith(new URL(liar.url).origin)));
});

test('if two nodes disagree, neither is believed', async () => {
  await cancelPart();
  await using liar = await startTracingNode(omitCalls);
  const { report, differences, dissents } = await verify({ rpc: [liar.url, chain.url] });
  assert.deepEqual([report.outcome, differences, report.undecided.unconfirmed], ['not_compared', [], 3]);
  assert.equal(dissents.length, 3);
  assert.ok(
    dissents.every((line) => line.includes(': has this difference, and another node does not: block')),
  );
});

test('if too few nodes answer, the blocks count as unconfirmed, not as compared, and the node is named', async () => {
  const away = 'http://127.0.0.1:1';
  const { report, differences } = await verify({ rpc: [chain.url, away] });
  assert.deepEqual([report.outcome, differences, report.undecided.unconfirmed], ['not_compared', [], last]);
  assert.deepEqual([report.blocks, report.notifications, report.quorum], [0, 0, { nodes: 2, needed: 2 }]);
  assert.deepEqual(
    report.unanswered.map(({ node }) => node),
    [away],
  );
  const shown = describe(report);
  assert.match(
    shown,
    new RegExp(
      `^not comparable, unconfirmed: ${last}\nnode ${away} did not answer: .*ECONNREFUSED.*\n2 of 2 nodes must confirm a difference. Repair or replace the nodes named above, then run the command again\nnot compared: no block of 1 to ${last} could be compared\n$`,
    ),
  );
});

const range = ['repair', '--from', '1', '--to', String(last)];
const linesOf = (out: string) =>
  out
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));

test('chainbell repair, beside the service, prints a plan without changes, applies that plan, and then has no more to repair', async () => {
  await change(sql`delete from notification_status where tx_hash = ${toBytes(split.hash)} and ordinal = 1`);
  await change(
    sql`update notification_status set state = 'cancelled' where tx_hash = ${toBytes(payment.hash)}`,
  );
  const { differences } = await verify();
  assert.equal(differences.length, 2);

  const planned = await run(...range, '--dry-run');
  assert.equal(planned.code, 1, planned.err);
  assert.match(
    planned.out,
    /^reschedule: block \d+: delivery: notification \d+, value of transaction 0x\w+, watched address \S+: it is cancelled, but its watched address/m,
  );
  assert.match(planned.out, /^create and deliver: block \d+: missing: internal transfer 1 of transaction /m);
  assert.match(
    planned.err,
    /\n2 repairs planned, 0 done, 0 differences can't be repaired\nnothing was changed\. /,
  );
  assert.deepEqual((await verify()).differences.map(outline), differences.map(outline));

  const applied = await run(...range, '--apply');
  assert.deepEqual([applied.code, applied.out], [0, planned.out], applied.err);
  assert.match(applied.err, /2 repairs planned, 2 done, 0 differences can't be repaired\n$/);

  const again = await run(...range, '--apply', '--json');
  assert.equal(again.code, 0);
  const [{ summary }] = linesOf(again.out);
  const { verify: _, ...counts } = summary;
  const none = { cannot_repair: 0, held_back: 0, skipped: 0, unknown: 0 };
  assert.deepEqual(counts, { planned: 0, repaired: 0, ...none });
});

test('closing the output early changes neither the repair nor its exit code', async () => {
  await change(
    sql`update notification_status set state = 'cancelled' where tx_hash = ${toBytes(payment.hash)}`,
  );
  const unread = async (...words: string[]) => {
    const { process: child, ended } = start(...words);
    child.stdout.destroy();
    return ended;
  };
  assert.equal((await unread('verify')).code, 1);
  assert.equal((await unread(...range, '--dry-run')).code, 1);
  const applied = await unread(...range, '--apply');
  assert.equal(applied.code, 0, applied.err);
  assert.match(applied.err, /1 repair planned, 1 done, 0 differences can't be repaired\n$/);
  assert.deepEqual((await verify()).differences, []);
});

/** An acknowledged webhook whose row has another amount than the chain. */
const damageTold = () =>
  change(sql`
    update notification_status set amount = 17, state = 'processed', processed_at = '2026-11-22T10:00:00Z', may_be_seen = true
    where tx_hash = ${toBytes(split.hash)} and ordinal = 0`);

test('a transfer that may be credited twice is not sent until that is allowed, and the plan shows past and future notifications', async () => {
  await damageTold();
  for (const word of ['--dry-run', '--apply']) {
    const held = await run(...range, word);
    assert.equal(held.code, 1);
    const [step, told, sends] = held.out.split('\n');
    assert.match(
      step ?? '',
      /^mark as orphaned, then create and deliver: block \d+: changed: notification \d+, .* amount 17 is stored, 1 is on the chain$/,
    );
    assert.match(
      told ?? '',
      /^ {2}told: the receiver acknowledged notification \d+ at 2026-11-22T10:00:00.000Z; what was sent is not stored: amount 17 as the row says now, or amount 1 if the row was changed after it was sent$/,
    );
    assert.match(
      sends ?? '',
      /^ {2}sends: amount 1 under a new id, only with --allow-double-credit: without the setting "removed", notification \d+ can't be taken back. A receiver/,
    );
    assert.match(held.err, /1 repair planned, 0 done, 0 differences can't be repaired\n/);
    assert.match(
      held.err,
      /1 repair can credit a receiver twice and needs --allow-double-credit\. First ask/,
    );
  }
  const [line, { summary }] = linesOf((await run(...range, '--apply', '--json')).out);
  const { message: _, id, told, sends, ...fields } = line;
  assert.deepEqual(fields, {
    ...{ repair: 'mark as orphaned, then create and deliver', difference: 'changed', block: split.block },
    ...{ watched_addresses_id: records.receiver, needs: '--allow-double-credit' },
  });
  const { text: _text, ...facts } = told;
  assert.deepEqual(facts, {
    ...{ id, amount: '17', is_acknowledged: true, acknowledged_at: '2026-11-22T10:00:00.000Z', fate: 'kept' },
  });
  assert.equal(sends.amount, '1');
  assert.deepEqual([summary.planned, summary.repaired, summary.held_back, summary.skipped], [1, 0, 1, 0]);

  const applied = await run(...range, '--apply', '--allow-double-credit');
  assert.equal(applied.code, 0, applied.err);
  const healed = await run(...range, '--apply');
  assert.deepEqual([healed.code, healed.out], [0, ''], healed.err);
});

test('with removed on, the plan shows the removal notice, and needs no permission', async () => {
  await change(sql`update watched_address set removed = true where id = ${records.receiver}`);
  await damageTold();
  const { code, out, err } = await run(...range, '--apply');
  assert.equal(code, 0, err);
  const [step, , sends] = out.split('\n');
  assert.match(step ?? '', /^send removal notice, then create and deliver: /);
  assert.match(sends ?? '', /^ {2}sends: removal notice (\d+)-1 until a 2xx, and amount 1 under a new id$/);
});

const outline = ({ kind, block, notification }: Difference) => [kind, block, notification];
