/**
 * The supply record (spec 2.5), computed from a reading of balances. Pure.
 */
import type { BalanceMethod } from '../../chain/contracts/balances.ts';
import { amountOf, decimalText } from '../../core/decimal.ts';
import { type Address, zeroAddress } from '../../core/hex.ts';
import type { BlockId } from '../../domain/block.ts';

/** The configuration of the supply. */
export type SupplyTerms = {
  nativeSymbol: string;
  initialWei: bigint;
  multicall3: Address;
  /** The contract that holds the validators' stakes. */
  staking: Address | undefined;
  /** Vesting contracts by label. */
  vesting: Readonly<Record<string, Address>>;
};

/** The balance of an address and its time. The time is before that of the reading if the node did not return it this time. */
export type Balance = { wei: bigint; at: Date };

export type SupplyReading = {
  at: Date;
  block: BlockId;
  /** scheme://host of the node that gave it. */
  nodeName: string;
  method: BalanceMethod;
  /** The balance of each address of `supplyAddresses`. */
  balances: ReadonlyMap<Address, Balance>;
};

/** Spec 8. */
export const SUPPLY_CACHE_SECONDS = 120;
const COIN_DECIMALS = 18;
const STAKING_LABEL = 'validators_staking';
const BURN_LABEL = 'burn_address';

type SupplyFigures = Record<'initial' | 'locked' | 'burned' | 'circulating' | 'total', bigint>;

/** The addresses whose balances are subtracted, with their labels. The burn address (spec 4.4) is last. */
export function supplyAddresses({ staking, vesting }: SupplyTerms): { address: Address; label: string }[] {
  return [
    ...(staking === undefined ? [] : [{ address: staking, label: STAKING_LABEL }]),
    ...Object.entries(vesting).map(([label, address]) => ({ address, label })),
    { address: zeroAddress, label: BURN_LABEL },
  ];
}

/** In wei. Circulating and total (not burned) supply are at least 0 (spec 4.4). */
export function supplyFigures(terms: SupplyTerms, reading: SupplyReading): SupplyFigures {
  const { initialWei: initial } = terms;
  const burned = balanceOf(reading, zeroAddress).wei;
  let locked = 0n;
  for (const { address } of supplyAddresses(terms))
    if (address !== zeroAddress) locked += balanceOf(reading, address).wei;
  return {
    initial,
    locked,
    burned,
    circulating: atLeastZero(initial - locked - burned),
    total: atLeastZero(initial - burned),
  };
}

/** Exactly the fields of spec 2.5, in its order. */
export function supplyRecord(terms: SupplyTerms, reading: SupplyReading) {
  const { initial, locked, burned, circulating } = supplyFigures(terms, reading);
  const entries = supplyAddresses(terms).map(({ address, label }) => {
    const { wei } = balanceOf(reading, address);
    return { address, label, balance_wei: String(wei), balance_native: coinText(wei) };
  });
  return {
    timestamp: reading.at.toISOString(),
    cache: { ttl_seconds: SUPPLY_CACHE_SECONDS, note: cacheNote(terms, reading) },
    summary: {
      initial_supply_native: coinText(initial),
      locked_supply_native: coinText(locked),
      burned_supply_native: coinText(burned),
      circulating_supply_native: coinText(circulating),
    },
    raw: {
      units: {
        native: terms.nativeSymbol,
        base: 'wei',
        wei_per_native: String(10n ** BigInt(COIN_DECIMALS)),
      },
      initial_supply_wei: String(initial),
      locked_supply_wei: String(locked),
      burned_supply_wei: String(burned),
      circulating_supply_wei: String(circulating),
      locked_supply_breakdown: entries.slice(0, -1),
      burned_supply_breakdown: entries.at(-1),
    },
    methodology: {
      formula: 'circulating = initial - locked - burned, and 0 where that would be negative',
      data_sources: {
        rpc_provider: providerName(reading.nodeName),
        multicall3_contract: describeMethod(terms, reading),
      },
      address_labels: {
        validators_staking: terms.staking ?? null,
        vesting_contracts: terms.vesting,
        burn_address: zeroAddress,
      },
      verification: { how_to_verify: howToVerify(terms, reading) },
    },
  };
}

/** In whole coins, with all digits. */
export function coinText(wei: bigint): string {
  return decimalText(amountOf(wei, COIN_DECIMALS));
}

const atLeastZero = (value: bigint) => (value < 0n ? 0n : value);

function balanceOf({ balances }: SupplyReading, address: Address): Balance {
  const balance = balances.get(address);
  if (balance === undefined) throw new Error(`the reading has no balance of ${address}`);
  return balance;
}

function cacheNote(terms: SupplyTerms, reading: SupplyReading): string {
  const note = `Balances are read from the chain at one block, and kept for ${SUPPLY_CACHE_SECONDS} seconds.`;
  const older = olderBalances(terms, reading).map(({ label, at }) => `${label} (of ${at.toISOString()})`);
  return older.length === 0 ? note : `${note} The chain's answer left out: ${older.join(', ')}.`;
}

/** The balances that the node did not return this time, so that they are of an earlier reading. */
function olderBalances(terms: SupplyTerms, { at, balances }: SupplyReading): { label: string; at: Date }[] {
  return supplyAddresses(terms).flatMap(({ address, label }) => {
    const balance = balances.get(address);
    return balance !== undefined && balance.at.getTime() < at.getTime() ? [{ label, at: balance.at }] : [];
  });
}

function describeMethod({ multicall3 }: SupplyTerms, { method }: SupplyReading): string {
  switch (method) {
    case 'multicall3':
      return `${multicall3}: aggregate3 of getEthBalance(address), in one eth_call at one block`;
    case 'eth_getBalance':
      return `not used, because ${multicall3} has no such contract or did not answer for all: eth_getBalance of each address at one block`;
  }
}

function howToVerify(terms: SupplyTerms, reading: SupplyReading): string {
  const { block, method } = reading;
  const call =
    method === 'multicall3' ? 'getEthBalance(address) of Multicall3, or eth_getBalance,' : 'eth_getBalance';
  const older = olderBalances(terms, reading).map(({ label }) => label);
  const taken = `Take the balance of ${older.join(', ')} from the breakdowns instead, because it is older than this block.`;
  return (
    `Call ${call} for each address of the breakdowns at block ${block.number} (${block.hash}), ` +
    `and subtract the balances from the initial supply.${older.length === 0 ? '' : ` ${taken}`}`
  );
}

/** The last two labels of its host, because subdomains and the path may contain the operator's secrets. */
function providerName(nodeName: string): string {
  const host = URL.parse(nodeName)?.hostname ?? '';
  const isName = /^([\w-]+\.)+[a-z][a-z-]*$/i.test(host);
  return isName ? host.split('.').slice(-2).join('.') : "the operator's own node";
}
