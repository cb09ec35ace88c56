/**
 * Routes for the supply of the native coin (spec 4.4), and for each of its figures as a plain number for listing sites.
 */
import Type from 'typebox';
import { Fault } from '../../core/fault.ts';
import type { Api } from '../context.ts';
import { addPublicRoute, json, plainText } from '../http/public.ts';
import type { SupplyReader } from './supply-reader.ts';
import { coinText, SUPPLY_CACHE_SECONDS, supplyFigures, supplyRecord } from './supply-record.ts';

const Amount = Type.String({ description: 'Decimal digits.' });
const Coins = Type.Object({ balance_wei: Amount, balance_native: Amount });
const Holder = Type.Object({ address: Type.String(), label: Type.String(), ...Coins.properties });

const SupplyRecord = Type.Object({
  timestamp: Type.String({ description: 'When the balances were read, ISO 8601.' }),
  cache: Type.Object({ ttl_seconds: Type.Integer(), note: Type.String() }),
  summary: Type.Object({
    initial_supply_native: Amount,
    locked_supply_native: Amount,
    burned_supply_native: Amount,
    circulating_supply_native: Amount,
  }),
  raw: Type.Object({
    units: Type.Object({ native: Type.String(), base: Type.String(), wei_per_native: Amount }),
    initial_supply_wei: Amount,
    locked_supply_wei: Amount,
    burned_supply_wei: Amount,
    circulating_supply_wei: Amount,
    locked_supply_breakdown: Type.Array(Holder),
    burned_supply_breakdown: Holder,
  }),
  methodology: Type.Object({
    formula: Type.String(),
    data_sources: Type.Object({ rpc_provider: Type.String(), multicall3_contract: Type.String() }),
    address_labels: Type.Object({
      validators_staking: Type.Union([Type.String(), Type.Null()]),
      vesting_contracts: Type.Record(Type.String(), Type.String()),
      burn_address: Type.String(),
    }),
    verification: Type.Object({ how_to_verify: Type.String() }),
  }),
});

const NONE = { 404: 'Supply is not published here' };
const coins = (whole: string) => ({ balance_wei: `${whole}${'0'.repeat(18)}`, balance_native: whole });
const burned = { address: `0x${'0'.repeat(40)}`, label: 'burn_address', ...coins('100') };
const staking = `0x${'11'.repeat(20)}`;
const team = `0x${'22'.repeat(20)}`;
const EXAMPLE = {
  timestamp: '2026-01-31T12:00:00.000Z',
  cache: { ttl_seconds: 120, note: 'Kept for 120 seconds.' },
  summary: {
    initial_supply_native: '10000',
    locked_supply_native: '900',
    burned_supply_native: '100',
    circulating_supply_native: '9000',
  },
  raw: {
    units: { native: 'ETH', base: 'wei', wei_per_native: '1000000000000000000' },
    initial_supply_wei: coins('10000').balance_wei,
    locked_supply_wei: coins('900').balance_wei,
    burned_supply_wei: coins('100').balance_wei,
    circulating_supply_wei: coins('9000').balance_wei,
    locked_supply_breakdown: [
      { address: staking, label: 'validators_staking', ...coins('800') },
      { address: team, label: 'team', ...coins('100') },
    ],
    burned_supply_breakdown: burned,
  },
  methodology: {
    formula: 'circulating = initial - locked - burned',
    data_sources: { rpc_provider: 'node.example', multicall3_contract: 'aggregate3, getEthBalance' },
    address_labels: {
      validators_staking: staking,
      vesting_contracts: { team },
      burn_address: burned.address,
    },
    verification: { how_to_verify: 'Read the balances of these addresses at one block.' },
  },
};

const FIGURES = ['circulating', 'total', 'initial', 'locked', 'burned'] as const;

/** `supply` is undefined if it is not configured. The routes then answer 404. */
export function addSupplyRoutes(api: Api, { supply }: { supply: SupplyReader | undefined }): void {
  const read = async () => {
    if (supply === undefined) throw new Fault('not_found', 'Supply is not published here');
    return { terms: supply.terms, reading: await supply.read() };
  };
  addPublicRoute(api, {
    path: '/api/native/supply-info',
    example: EXAMPLE,
    errors: NONE,
    summary: 'Initial, locked, burned and circulating supply, with balances and method',
    answer: SupplyRecord,
    cacheSeconds: SUPPLY_CACHE_SECONDS,
    async compute() {
      const { terms, reading } = await read();
      return { ...json(supplyRecord(terms, reading)), asOf: reading.at };
    },
  });
  for (const figure of FIGURES) {
    addPublicRoute(api, {
      path: `/api/native/supply/${figure}`,
      example: '9999999000',
      errors: NONE,
      summary: `The ${figure} supply in whole coins, as a plain number`,
      answer: Type.String(),
      cacheSeconds: SUPPLY_CACHE_SECONDS,
      async compute() {
        const { terms, reading } = await read();
        return { ...plainText(coinText(supplyFigures(terms, reading)[figure])), asOf: reading.at };
      },
    });
  }
}
