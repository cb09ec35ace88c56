import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import {
  type SupplyReading,
  type SupplyTerms,
  supplyAddresses,
  supplyFigures,
  supplyRecord,
} from '../../../src/api/public/supply-record.ts';
import { zeroAddress } from '../../../src/core/hex.ts';
import { makeAddress, makeHash } from '../../kit/scripted-node.ts';

const COIN = 10n ** 18n;
const at = new Date('2025-11-20T12:00:00.000Z');
const [staking, team, advisors, multicall3] = [
  makeAddress(1),
  makeAddress(2),
  makeAddress(3),
  makeAddress(9),
];
const terms: SupplyTerms = {
  nativeSymbol: 'BELL',
  initialWei: 10_000_000_000n * COIN,
  multicall3,
  staking,
  vesting: { team, advisors },
};

/** Balances in the order staking, team, advisors, burn address. */
function readingOf(balances: readonly bigint[], changes: Partial<SupplyReading> = {}): SupplyReading {
  const entries = supplyAddresses(terms).map(
    ({ address }, index) => [address, { wei: balances[index] ?? 0n, at }] as const,
  );
  return {
    at,
    block: { number: 7, hash: makeHash(0, 7, 0) },
    nodeName: 'https://bell-mainnet.g.provider.example:8443',
    method: 'multicall3',
    balances: new Map(entries),
    ...changes,
  };
}

test('the record has exactly the fields of spec 2.5, in its order', () => {
  const reading = readingOf([1_000n * COIN, 5n * COIN + 1n, COIN / 2n, 3n]);
  assert.equal(
    JSON.stringify(supplyRecord(terms, reading), undefined, 1),
    JSON.stringify(
      {
        timestamp: '2025-11-20T12:00:00.000Z',
        cache: {
          ttl_seconds: 120,
          note: 'Balances are read from the chain at one block, and kept for 120 seconds.',
        },
        summary: {
          initial_supply_native: '10000000000',
          locked_supply_native: '1005.500000000000000001',
          burned_supply_native: '0.000000000000000003',
          circulating_supply_native: '9999998994.499999999999999996',
        },
        raw: {
          units: { native: 'BELL', base: 'wei', wei_per_native: '1000000000000000000' },
          initial_supply_wei: '10000000000000000000000000000',
          locked_supply_wei: '1005500000000000000001',
          burned_supply_wei: '3',
          circulating_supply_wei: '9999998994499999999999999996',
          locked_supply_breakdown: [
            {
              address: staking,
              label: 'validators_staking',
              balance_wei: '1000000000000000000000',
              balance_native: '1000',
            },
            {
              address: team,
              label: 'team',
              balance_wei: '5000000000000000001',
              balance_native: '5.000000000000000001',
            },
            {
              address: advisors,
              label: 'advisors',
              balance_wei: '500000000000000000',
              balance_native: '0.5',
            },
          ],
          burned_supply_breakdown: {
            address: zeroAddress,
            label: 'burn_address',
            balance_wei: '3',
            balance_native: '0.000000000000000003',
          },
        },
        methodology: {
          formula: 'circulating = initial - locked - burned, and 0 where that would be negative',
          data_sources: {
            rpc_provider: 'provider.example',
            multicall3_contract: `${multicall3}: aggregate3 of getEthBalance(address), in one eth_call at one block`,
          },
          address_labels: {
            validators_staking: staking,
            vesting_contracts: { team, advisors },
            burn_address: zeroAddress,
          },
          verification: {
            how_to_verify: `Call getEthBalance(address) of Multicall3, or eth_getBalance, for each address of the breakdowns at block 7 (${makeHash(0, 7, 0)}), and subtract the balances from the initial supply.`,
          },
        },
      },
      undefined,
      1,
    ),
  );
});

test('circulating is initial minus locked minus burned, never below zero (spec 4.4)', () => {
  const wei = fc.bigInt({ min: 0n, max: 2n ** 200n });
  fc.assert(
    fc.property(fc.array(wei, { minLength: 4, maxLength: 4 }), wei, (balances, initialWei) => {
      const figures = supplyFigures({ ...terms, initialWei }, readingOf(balances));
      const [one = 0n, two = 0n, three = 0n, burned = 0n] = balances;
      assert.equal(figures.locked, one + two + three);
      assert.equal(figures.burned, burned);
      const difference = initialWei - one - two - three - burned;
      assert.equal(figures.circulating, difference < 0n ? 0n : difference);
      assert.equal(figures.total, initialWei < burned ? 0n : initialWei - burned);
    }),
  );
});

test('an older balance is shown with its time, and is not to be verified at the block of the others', () => {
  const reading = readingOf([1n, 2n, 3n, 4n]);
  const earlier = new Date(at.getTime() - 60_000);
  const balances = new Map(reading.balances).set(team, { wei: 2n, at: earlier });
  const { cache, methodology } = supplyRecord(terms, { ...reading, balances });
  assert.match(cache.note, / The chain's answer left out: team \(of 2025-11-20T11:59:00\.000Z\)\.$/);
  assert.match(
    methodology.verification.how_to_verify,
    / Take the balance of team from the breakdowns instead, /,
  );
});

test('the record says if the chain has no Multicall3 and no staking contract', () => {
  const { methodology, raw } = supplyRecord(
    { ...terms, staking: undefined, vesting: {} },
    readingOf([], { method: 'eth_getBalance' }),
  );
  assert.match(
    methodology.data_sources.multicall3_contract,
    /^not used, because 0x[\da-f]{40} has no such contract or did not answer for all: eth_getBalance/i,
  );
  assert.match(methodology.verification.how_to_verify, /^Call eth_getBalance for each/);
  assert.deepEqual(methodology.address_labels, {
    validators_staking: null,
    vesting_contracts: {},
    burn_address: zeroAddress,
  });
  assert.deepEqual(raw.locked_supply_breakdown, []);
});

test("the provider's name contains nothing private of the operator", () => {
  for (const [nodeName, name] of [
    ['https://my-key.quiknode.example', 'quiknode.example'],
    ['https://rpc.ankr.example:443', 'ankr.example'],
    ['http://127.0.0.1:8545', "the operator's own node"],
    ['http://[::1]:8545', "the operator's own node"],
    ['http://geth:8545', "the operator's own node"],
  ]) {
    const record = supplyRecord(terms, readingOf([], { nodeName: nodeName ?? '' }));
    assert.equal(record.methodology.data_sources.rpc_provider, name);
  }
});
