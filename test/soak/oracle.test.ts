import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ChainTransfer } from '../faults/oracle.ts';
import { contentOf } from '../faults/oracle.ts';
import { judgeFlatness } from './flat.ts';
import { type Arrival, createSoakOracle, type SeenBlock, type Strike, type WatchedRecord } from './oracle.ts';

const [PAYER, ADDRESS] = [`0x${'01'.repeat(20)}`, `0x${'02'.repeat(20)}`] as const;
const both = { watchCoin: true, watchToken: true };
/** Created at 10 to 11. Blocks are mined every 100, and stored 50 later. */
const record: WatchedRecord = {
  id: 'record',
  address: ADDRESS,
  changes: [{ wish: both, startedAt: 10, endedAt: 11 }],
};

const transferOf = (number: number): ChainTransfer => ({
  hash: `0x${number}`,
  type: 'COIN_TRANSFER',
  sides: [PAYER, ADDRESS],
  amount: 7n,
  asset: 'eth',
});

const blockOf = (number: number, own: Partial<SeenBlock> = {}): SeenBlock => ({
  ...{ number, hash: `0x${number}b`, transfers: [transferOf(number)] },
  ...{ minedAt: number * 100, storedAt: number * 100 + 50, ...own },
});

const contentOfBlock = (number: number, id = record.id): string => {
  const { hash, type, sides, amount, asset } = transferOf(number);
  return contentOf(id, hash, type, ...sides, amount, asset);
};

const arrivalOf = (number: number, own: Partial<Arrival> = {}): Arrival => ({
  ...{ id: number, record: record.id, content: contentOfBlock(number), at: number * 100 + 60, isTaken: true },
  ...own,
});

/** The verdict in short: how many of each. */
function judge({
  blocks = [blockOf(1), blockOf(2)],
  orphaned = [] as readonly string[],
  records = [record],
  arrivals = [arrivalOf(1), arrivalOf(2)],
  strikes = [] as readonly Strike[],
}) {
  const canonical = new Set<string>(
    blocks.map(({ hash }) => hash).filter((hash) => !orphaned.includes(hash)),
  );
  const verdict = createSoakOracle().judge({ blocks, canonical, records, arrivals, strikes });
  const { transfers: due, lost, doubled, invented, unexplained, repeated } = verdict;
  return {
    ...{ due, lost: lost.length, doubled: doubled.length, invented: invented.length, repeated },
    unexplained: unexplained.length,
  };
}

const clean = { due: 2, lost: 0, doubled: 0, invented: 0, repeated: 0, unexplained: 0 };

test('the oracle of the soak accepts one webhook for each transfer', () => {
  assert.deepEqual(judge({}), clean);
});

test('a planted loss is found: a webhook that never came, or was never taken', () => {
  assert.deepEqual(judge({ arrivals: [arrivalOf(1)] }), { ...clean, lost: 1 });
  assert.deepEqual(judge({ arrivals: [arrivalOf(1), arrivalOf(2, { isTaken: false })] }), {
    ...clean,
    lost: 1,
  });
});

test('a planted double is found: a second id, or the same id again after its 2xx', () => {
  const second = arrivalOf(2, { id: 3, at: 270 });
  assert.deepEqual(judge({ arrivals: [arrivalOf(1), arrivalOf(2), second] }), { ...clean, doubled: 1 });
  const again = arrivalOf(2, { at: 270 });
  assert.deepEqual(judge({ arrivals: [arrivalOf(1), arrivalOf(2), again] }), { ...clean, unexplained: 1 });
});

test('a webhook may come again after a strike that it was under way at, and after no other', () => {
  const arrivals = [arrivalOf(1), arrivalOf(2), arrivalOf(2, { at: 270 })];
  const strikeAt = (startedAt: number) => [{ name: 'kill -9', startedAt, endedAt: startedAt + 5 }];
  assert.deepEqual(judge({ arrivals, strikes: strikeAt(260) }), { ...clean, repeated: 1 });
  assert.deepEqual(judge({ arrivals, strikes: strikeAt(200) }), { ...clean, unexplained: 1 });
  assert.deepEqual(judge({ arrivals, strikes: strikeAt(280) }), { ...clean, unexplained: 1 });
});

test('a webhook of no transfer, or of another record, is invented', () => {
  const other = arrivalOf(2, { id: 3, content: contentOfBlock(2, 'other') });
  assert.deepEqual(judge({ arrivals: [arrivalOf(1), arrivalOf(2), other] }), { ...clean, invented: 1 });
  assert.deepEqual(judge({ arrivals: [arrivalOf(1), arrivalOf(2), arrivalOf(3)] }), {
    ...clean,
    invented: 1,
  });
});

test('an orphaned transfer may have been sent, and is not due', () => {
  const blocks = [blockOf(1), blockOf(2), blockOf(2, { hash: '0xother', transfers: [] })];
  const orphaned = ['0x2b'];
  assert.deepEqual(judge({ blocks, orphaned }), { ...clean, due: 1 });
  assert.deepEqual(judge({ blocks, orphaned, arrivals: [arrivalOf(1)] }), { ...clean, due: 1 });
});

test('a change counts from the blocks that are mined after its answer, and may count for those stored after its request', () => {
  const without = { watchCoin: false, watchToken: true };
  const changedAt = (startedAt: number, endedAt: number) => ({
    ...record,
    changes: [...record.changes, { wish: without, startedAt, endedAt }],
  });
  const arrivals = [arrivalOf(1)];
  assert.deepEqual(judge({ records: [changedAt(160, 190)], arrivals }), { ...clean, due: 1 });
  assert.deepEqual(judge({ records: [changedAt(160, 190)] }), { ...clean, due: 1, invented: 1 });
  assert.deepEqual(judge({ records: [changedAt(220, 230)] }), { ...clean, due: 1 });
  assert.deepEqual(judge({ records: [changedAt(220, 230)], arrivals }), { ...clean, due: 1 });
  assert.deepEqual(judge({ records: [changedAt(260, 290)], arrivals }), { ...clean, lost: 1 });
});

test('a deleted record has no due webhooks, and none for blocks after its deletion', () => {
  const deleted = {
    ...record,
    changes: [...record.changes, { wish: undefined, startedAt: 160, endedAt: 190 }],
  };
  assert.deepEqual(judge({ records: [deleted], arrivals: [] }), { ...clean, due: 0 });
  assert.deepEqual(judge({ records: [deleted] }), { ...clean, due: 0, invented: 1 });
});

test('growth is found, and garbage that comes and goes is not growth', () => {
  const memory = { what: 'memory', unit: 'MiB' } as const;
  const slack = { absolute: 20, part: 0.1 };
  const flat = Array.from({ length: 60 }, (_, index) => 200 + (index % 7) * 10);
  assert.equal(judgeFlatness(memory, flat, slack).isFlat, true);
  const growing = flat.map((value, index) => value + index * 2);
  assert.equal(judgeFlatness(memory, growing, slack).isFlat, false);
  assert.equal(judgeFlatness(memory, growing.slice(0, 5), slack).isFlat, undefined);
});
