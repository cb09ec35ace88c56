/**
 * Supply of the native coin (spec 4.4), and its figures as plain numbers for listing sites.
 */
import Type from 'typebox';
import { Fault } from '../core/fault.ts';
import { addPublicRoute, json, plainText } from './public.ts';
import type { Api } from './server.ts';
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

const FIGURES = ['circulating', 'total', 'initial', 'locked', 'burned'] as const;

/** `supply` is undefined where none is configured: the routes then answer 404. */
export function addSupplyRoutes(api: Api, { supply }: { supply: SupplyReader | undefined }): void {
  const read = async () => {
    if (supply === undefined) throw new Fault('not_found', 'Supply is not published here');
    return { terms: supply.terms, reading: await supply.read() };
  };
  addPublicRoute(api, {
    path: '/api/native/supply-info',
    summary: 'Initial, locked, burned and circulating supply, with balances and method',
    answer: SupplyRecord,
    cacheSeconds: SUPPLY_CACHE_SECONDS,
    key: () => '',
    async compute() {
      const { terms, reading } = await read();
      return json(supplyRecord(terms, reading));
    },
  });
  for (const figure of FIGURES) {
    addPublicRoute(api, {
      path: `/api/native/supply/${figure}`,
      summary: `The ${figure} supply in whole coins, as a plain number`,
      answer: Type.String(),
      cacheSeconds: SUPPLY_CACHE_SECONDS,
      key: () => '',
      async compute() {
        const { terms, reading } = await read();
        return plainText(coinText(supplyFigures(terms, reading)[figure]));
      },
    });
  }
}
