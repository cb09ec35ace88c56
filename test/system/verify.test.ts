/**
 * `chainbell verify` on a real node and a real database: stored data equals the chain, and every manual change is found.
 * The service runs meanwhile.
 */
import assert from 'node:assert/strict';
import { type Difference, nothingUndecided } from '../../src/audit/compare.ts';
import type { VerifyReport } from '../../src/audit/verify-report.ts';
import { type Hash, toBytes } from '../../src/core/hex.ts';
import { raw, sql } from '../../src/store/db/sql.ts';
import { timeSum } from '../../src/store/db/time-sum.ts';
import { sampledTest } from '../kit/sample.ts';
import {
  chainMethods,
  type NodeBlock,
  RpcError,
  startScriptedNode,
  traceMethod,
} from '../kit/scripted-node.ts';
import { CHAIN_ID, freshAddress } from '../kit/service.ts';
import { blockAt, NOTIFICATIONS, nodeBlockAt, useVerifiedChain } from '../kit/verified-chain.ts';

const test = sampledTest(import.meta.url);

const { chain, records, payment, split, last, change, verify, run, nodeBlocks } = await useVerifiedChain();
const hour = sql`interval '1 hour'`;

test('followed blocks equal the chain: hashes, proof and every notification', async () => {
  const { report, differences } = await verify();
  assert.deepEqual(differences, []);
  assert.deepEqual(report, reportOf({ range: { from: 1, to: last } }));
});

test('a deleted notification is reported as missing', async () => {
  await change(sql`delete from notification_status where tx_hash = ${toBytes(split.hash)} and ordinal = 1`);
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
    new RegExp(
      `^block ${split.block}: missing: internal transfer 1 of transaction ${split.hash}, watched address `,
    ),
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
  test(`a notification with another ${field} is reported`, async () => {
    await change(sql`update notification_status set ${value} where tx_hash = ${toBytes(payment.hash)}`);
    const { differences } = await verify();
    assert.deepEqual(
      differences.map(({ kind, block }) => [kind, block]),
      [['changed', payment.block]],
    );
    assert.match(differences[0]?.message ?? '', new RegExp(`${field} .* is stored, .* is on the chain$`));
  });
}

test('an invented notification is unexpected, whatever transfer it claims', async () => {
  const invent = (fields: { txHash: Hash; record: string }) =>
    change(sql`
      insert into notification_status (shard_id, lane_id, watched_address_id, watcher_id, kind, tx_hash, ordinal, sender, receiver,
        amount, token, block_number, state, next_attempt_at, created_at)
      select shard_id, lane_id, ${fields.record}, watcher_id, kind, ${toBytes(fields.txHash)}, ordinal, sender, receiver,
        amount, token, block_number, 'waiting', now(), created_at
      from notification_status where tx_hash = ${toBytes(payment.hash)} and watched_address_id = ${records.receiver}`);
  const txHash: Hash = `0x${'5'.repeat(64)}`;
  await invent({ txHash, record: records.receiver });
  // A real transfer, stored for a watched address that does not watch native coin.
  await invent({ txHash: payment.hash, record: records.payer });
  const { report, differences } = await verify();
  const own = { kind: 'transaction', ordinal: 0 };
  assert.deepEqual(
    new Set(
      differences.map(({ kind, block, notification }) => {
        assert.ok(notification?.id !== undefined);
        const { id: _, ...place } = notification;
        return [kind, block, place];
      }),
    ),
    new Set([
      ['unexpected', payment.block, { watchedAddressId: records.receiver, txHash, ...own }],
      ['unexpected', payment.block, { watchedAddressId: records.payer, txHash: payment.hash, ...own }],
    ]),
  );
  assert.equal(report.notifications, NOTIFICATIONS);
});

test('a block with another hash, another parent or no proof is reported, and so is one that is not stored', async () => {
  const other = toBytes(`0x${'5'.repeat(64)}`);
  await change(sql`update block set hash = ${other} where number = ${payment.block}`);
  await change(sql`update block set parent_hash = ${other} where number = ${split.block}`);
  await change(sql`update block set proved = false where number = ${last}`);
  await change(sql`delete from block where number = ${last - 1}`);
  const { report, differences } = await verify();
  assert.deepEqual(
    new Set(differences.map(({ kind, block }) => [kind, block])),
    new Set([
      ['hash', payment.block],
      ['hash', split.block],
      ['not_stored', last - 1],
      ['proved', last],
    ]),
  );
  assert.equal(report.blocks, last - 2);
});

test('blocks that change during the comparison are part of a reorg, and no difference', async () => {
  const { hash } = await blockAt(chain, payment.block);
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

test('a block that its node replaces is part of a reorg, and no difference', async () => {
  const blocks = await nodeBlocks();
  const stored = blocks[last] ?? (await nodeBlockAt(chain, last));
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

test('verify ends with an error if the nodes become unavailable, instead of counting the rest as not served', async () => {
  const blocks = await nodeBlocks();
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

test('a record counts from the block after its creation, and the order of two at the same moment is unknown', async () => {
  await change(sql`delete from notification_status where watched_address_id = ${records.receiver}`);
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

test('a notification that is older than its record is unexpected', async () => {
  await change(
    sql`update watched_address set created_at = now() + ${hour}, updated_at = now() + ${hour} where id = ${records.payer}`,
  );
  const { differences } = await verify();
  assert.deepEqual(
    differences.map(({ kind, notification }) => [kind, notification?.watchedAddressId]),
    [
      ['unexpected', records.payer],
      ['unexpected', records.payer],
    ],
  );
});

test('the former settings of a changed or deleted record are unknown, but its notifications must match transfers', async () => {
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
    sql`update notification_status set amount = amount + 1 where watched_address_id = ${records.payer} and block_number = ${last}`,
  );
  assert.deepEqual(
    (await verify()).differences.map(({ kind, block }) => [kind, block]),
    [['changed', last]],
  );
});

test('a missing notification is not reported if its record was changed after the block', async () => {
  await change(sql`delete from notification_status where watched_address_id = ${records.payer}`);
  await change(sql`update watched_address set updated_at = now() where id = ${records.payer}`);
  const { report, differences } = await verify();
  assert.deepEqual(
    [report, differences],
    [reportOf({ notifications: 4, undecided: { record_changed: 2 } }), []],
  );
});

test('transfers that settings exclude are not missing, and those that they include must be stored', async () => {
  await change(sql`
    update watched_address set direction = 'in', min_amount = 3, tokens = jsonb_build_object(${'5'.repeat(40)}::text, '0')
    where id = ${records.receiver}`);
  // Both internal transfers (2 wei and 1 wei) are below the minimum, and the token is not on the list.
  await change(sql`
    delete from notification_status where watched_address_id = ${records.receiver} and tx_hash <> ${toBytes(payment.hash)}`);
  const { report, differences } = await verify();
  assert.deepEqual([report, differences], [reportOf({ notifications: 3 }), []]);
  await change(sql`delete from notification_status where tx_hash = ${toBytes(payment.hash)}`);
  assert.deepEqual(
    (await verify()).differences.map(({ kind, block }) => [kind, block]),
    [['missing', payment.block]],
  );
});

test('a stored notification that settings exclude is unexpected, unless the settings came later', async () => {
  await change(sql`update watched_address set direction = 'out' where id = ${records.receiver}`);
  const early = await verify();
  assert.deepEqual(
    early.differences.map(({ kind }) => kind),
    Array(4).fill('unexpected'),
  );
  await change(sql`update watched_address set updated_at = now() where id = ${records.receiver}`);
  const late = await verify();
  assert.deepEqual(
    [late.report, late.differences],
    [reportOf({ notifications: 2, undecided: { record_changed: 4 } }), []],
  );
});

test('notifications that the retention may have deleted are not missing', async () => {
  const older = (column: string) => {
    const former = timeSum(raw(column), sql`interval '-91 days'`);
    return sql`${raw(column)} = ${former}`;
  };
  await change(sql`update block set ${older('stored_at')}`);
  await change(sql`update notification_status set ${older('created_at')}`);
  await change(sql`update watched_address set ${older('created_at')}, ${older('updated_at')}`);
  await change(sql`delete from notification_status where watched_address_id = ${records.payer}`);
  const { report, differences } = await verify();
  assert.deepEqual([report, differences], [reportOf({ notifications: 4, undecided: { pruned: 2 } }), []]);
});

test('sent notifications of an orphaned block are counted but not compared, and a withdrawn one is ignored', async () => {
  const earlier = sql`created_at = created_at - interval '1 minute'`;
  await change(
    sql`update notification_status set tx_hash = ${toBytes(`0x${'5'.repeat(64)}`)}, state = 'processed', ${earlier} where tx_hash = ${toBytes(split.hash)} and ordinal = 0`,
  );
  await change(
    sql`update notification_status set state = 'withdrawn' where tx_hash = ${toBytes(split.hash)} and ordinal = 1`,
  );
  const { report, differences } = await verify();
  assert.equal(report.undecided.orphaned, 1);
  assert.deepEqual(
    differences.map(outline).map(([what, block]) => [what, block]),
    [
      ['missing', split.block],
      ['missing', split.block],
    ],
  );
});

test('a transaction that was mined again with another amount, but not sent, is a difference', async () => {
  await change(sql`
    update notification_status set amount = 6, state = 'processed', created_at = created_at - interval '1 minute'
    where tx_hash = ${toBytes(payment.hash)}`);
  const { differences } = await verify();
  assert.deepEqual(
    differences.map(({ kind, block, repairs }) => [kind, block, repairs?.map(({ action }) => action)]),
    [['changed', payment.block, ['orphan', 'create']]],
  );
  assert.match(differences[0]?.message ?? '', /amount 6 is stored, 7 is on the chain$/);
});

test('without traces, internal transfers are not compared; without proof, the proof flag is not', async () => {
  const { report, differences } = await verify({ settings: { internalTransfers: 'off', verify: 'off' } });
  assert.deepEqual(differences, []);
  assert.deepEqual(
    report,
    reportOf({ notifications: NOTIFICATIONS - 2, undecided: { not_traced: 2, proof_off: last } }),
  );
});

test('a range beyond the stored blocks is compared as far as blocks are stored', async () => {
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

test('a missing end of the range defaults to the stored one, or to the given end beyond that', async () => {
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

test('progress is reported after each batch, up to the last block', async () => {
  const { progress } = await verify();
  assert.deepEqual(progress.at(-1), { done: last, total: last, uncompared: 0, differences: 0 });
  const places = progress.map(({ done }) => done);
  assert.deepEqual(
    places,
    [...new Set(places)].sort((one, other) => one - other),
  );
});

test('a block with too many missing notifications is counted, and the others are compared', async () => {
  // In parts, because a statement of the API takes at most 5 s on Citus.
  for (let part = 0; part < 21; part += 1)
    await change(sql`
      insert into watched_address (shard_id, id, watcher_id, lane_id, address, watch_coin, watch_token, webhook_url, created_at, updated_at)
      select shard_id, gen_random_uuid(), watcher_id, lane_id, address, watch_coin, watch_token, webhook_url, created_at, updated_at
      from watched_address, generate_series(1, 5000) where id = ${records.receiver}`);
  const { report, differences } = await verify();
  assert.equal(differences.length, 0);
  // The payment, the split one and the token.
  assert.deepEqual([report.blocks, report.notifications, report.undecided.too_many], [last - 3, 1, 3]);
  assert.equal(report.outcome, 'not_compared');
});

test('a block that no node can prove is reported, one that no node has is not compared, and the others are compared', async () => {
  const blocks = await nodeBlocks();
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
    differences.map(({ kind, block }) => [kind, block]),
    [['not_proved', last]],
  );
  assert.match(differences[0]?.message ?? '', /could not be proved: .*its receipts root does not hold/);
  assert.deepEqual([report.blocks, report.undecided.not_served], [last - 2, 1]);
});

test('as a process: 0 and a summary when equal, 1 and a line for each difference when not', async () => {
  const runVerify = (...words: string[]) => run('verify', ...words);
  const equal = await runVerify('--json');
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
  await change(sql`update notification_status set amount = 8 where tx_hash = ${toBytes(payment.hash)}`);
  const words = ['--from', String(payment.block), '--to', String(payment.block)];
  const shown = await runVerify(...words);
  assert.equal(shown.code, 1, shown.err);
  assert.match(
    shown.out,
    /^block \d+: changed: notification \d+, value of transaction 0x\w+, watched address \S+: amount 8 is stored, 7 is on the chain\n$/,
  );
  assert.match(
    shown.err,
    /^different: 1 block of \d+ to \d+ compared, 0 notifications equal, 1 difference\nwhat to do: docs\/how-to\/verify-and-repair.md, "When something differs"\n$/,
  );
  const nothing = await runVerify('--from', String(last + 5));
  assert.deepEqual([nothing.code, nothing.out], [69, '']);
  assert.match(
    nothing.err,
    /^not comparable, after tip: 1\nnot compared: no block of \d+ to \d+ is stored\. Choose other blocks: chainbell status shows the newest one\n$/,
  );
  const [line = '', summary = ''] = (await runVerify('--json', ...words)).out.split('\n');
  const { message, ...fields } = JSON.parse(line);
  assert.match(message, /amount 8 is stored/);
  assert.deepEqual(fields, {
    ...{ difference: 'changed', block: payment.block, watched_addresses_id: records.receiver },
    ...{ hash: payment.hash, kind: 'transaction', ordinal: 0, id: fields.id },
  });
  assert.equal(typeof fields.id, 'number');
  assert.equal(JSON.parse(summary).summary.outcome, 'different');
  await change(sql`
    insert into notification_status (shard_id, lane_id, watched_address_id, watcher_id, kind, tx_hash, ordinal, sender, amount,
      block_number, state, next_attempt_at, created_at)
    select shard_id, lane_id, watched_address_id, watcher_id, kind, tx_hash, i, sender, amount + i, block_number, state, now(), now()
    from notification_status, generate_series(1, 1000) as i where tx_hash = ${toBytes(payment.hash)}`);
  const many = await runVerify('--json', ...words);
  const lines = many.out.trimEnd().split('\n');
  assert.equal(lines.length, 1_000 + 1);
  assert.equal(JSON.parse(lines.at(-1) ?? '').summary.differences, 1_001);
});

const outline = ({ kind, block, notification }: Difference) => [kind, block, notification];

/** A report of all blocks and notifications as equal, except for `parts`. */
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
      ...{ swaps: 0, awards: 0, notCompared: [], quorum: { nodes: 1, needed: 1 }, unanswered: [] },
      uncompared: [],
      differences: 0,
      dissents: 0,
    },
    ...rest,
    undecided: { ...nothingUndecided, ...undecided },
  };
}
