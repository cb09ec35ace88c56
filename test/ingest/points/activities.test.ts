import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Bundle, BundleTransaction } from '../../../src/chain/blocks/bundle.ts';
import { encodeWord } from '../../../src/core/abi.ts';
import { parseEventSignature } from '../../../src/domain/event-signature.ts';
import { compileRules } from '../../../src/domain/points/compile.ts';
import { createActivityReader, createSenderNeeds } from '../../../src/ingest/points/activities.ts';
import { addressOf, alice, bob, coin, hashOf, headerOf } from '../../kit/chain-story.ts';

const shop = addressOf(0x5001);
const source = { event: 'Paid(address indexed user, uint256 amount)', contracts: [shop] };
const rule = {
  type: 'event',
  version: 1,
  category: 'trading',
  user: 'arg:user',
  points: '1',
  source,
} as const;
const { rules } = compileRules(
  {
    seasons: {},
    rules: [
      { ...rule, id: 'one' },
      { ...rule, id: 'two', source: { ...source, contracts: [shop, coin] } },
    ],
  },
  { nativeSymbol: 'ETH', rewardSymbol: 'RWD', wrapped: undefined, feeds: { GEM: {} }, tokens: {}, pairs: [] },
);
const { topic } = parseEventSignature(source.event);
const paid = (address = shop) => ({
  address,
  topics: [topic, `0x${encodeWord(alice)}` as const],
  data: `0x${encodeWord(5n)}` as const,
});

function bundleOf(...transactions: Partial<BundleTransaction>[]): Bundle {
  const none = { from: bob, to: shop, value: 0n, succeeded: true, calls: [], logs: [] };
  return {
    ...{ header: headerOf(1), proved: true, traced: true },
    transactions: transactions.map((one, index) => ({ ...none, hash: hashOf(index + 1), ...one })),
  };
}

test('each rule gets its events at its contracts, with their positions in the receipt and in the block', () => {
  const other = { address: alice, topics: [hashOf(9)], data: '0x' as const };
  const activities = createActivityReader(rules)(
    bundleOf({ logs: [other, paid()] }, { logs: [paid(coin), paid(alice)] }),
  );
  assert.deepEqual(
    activities.map(({ listener, contract, ordinal, logIndex, sender, values }) => [
      listener.kind === 'event' ? listener.rule.id : listener.kind,
      ...[contract, ordinal, logIndex, sender, values],
    ]),
    [
      ['one', shop, 1, 1, bob, [alice, 5n]],
      ['two', shop, 1, 1, bob, [alice, 5n]],
      ['two', coin, 0, 2, bob, [alice, 5n]],
    ],
  );
});

test('a failed transaction has no activities, but its logs count in positions', () => {
  const activities = createActivityReader(rules)(
    bundleOf({ logs: [paid()], succeeded: false }, { logs: [paid()] }),
  );
  assert.deepEqual(
    activities.map(({ txHash, logIndex }) => [txHash, logIndex]),
    [
      [hashOf(2), 1],
      [hashOf(2), 1],
    ],
  );
});

test('logs without topics, or not encoded like the event, are ignored', () => {
  const logs = [
    { ...paid(), topics: [] },
    { ...paid(), data: '0x' as const },
    { ...paid(), topics: [topic] },
  ];
  assert.deepEqual(createActivityReader(rules)(bundleOf({ logs })), []);
});

test('only transactions with an activity whose user is the sender need a proof of it', () => {
  const logs = [paid(), paid(coin)];
  const bundle = bundleOf({ logs }, { logs: [paid(alice)] }, { logs, succeeded: false });
  assert.deepEqual(createSenderNeeds(rules)(bundle), []);
  const bySender = compileRules(
    {
      seasons: {},
      rules: [{ ...rule, id: 'one', user: 'tx.from', source: { ...source, contracts: [shop, coin] } }],
    },
    {
      nativeSymbol: 'ETH',
      rewardSymbol: 'RWD',
      wrapped: undefined,
      feeds: { GEM: {} },
      tokens: {},
      pairs: [],
    },
  );
  assert.deepEqual(createSenderNeeds(bySender.rules)(bundle), [hashOf(1)]);
});

test('without rules, no log is read', () => {
  assert.deepEqual(createActivityReader({ ...rules, listeners: [] })(bundleOf({ logs: [paid()] })), []);
});
