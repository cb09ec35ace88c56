/**
 * Builds the supply reader of the API from the configuration.
 */
import {
  createSupplyReader,
  type SupplyReader,
  type SupplyReaderOptions,
} from '../api/public/supply-reader.ts';
import type { Config } from '../config/schema.ts';
import { decimal, decimalText } from '../core/decimal.ts';
import type { Database } from '../store/db/db.ts';
import { findSupply, saveSupply } from '../store/supply/supply.ts';

/** Undefined when the supply isn't configured. Good readings are stored in the database. */
export function openSupply(
  { chain, supply }: Config,
  {
    database,
    ...dependencies
  }: Pick<SupplyReaderOptions, 'nodes' | 'clock' | 'log' | 'signal'> & {
    database: Database;
  },
): SupplyReader | undefined {
  if (supply === undefined) return undefined;
  const { initial, multicall3, locked, maxAgeSeconds } = supply;
  return createSupplyReader({
    ...dependencies,
    terms: {
      nativeSymbol: chain.native.symbol,
      initialWei: BigInt(decimalText(decimal(initial).times('1e18'))),
      multicall3,
      staking: locked.validatorsStaking,
      vesting: locked.vesting,
    },
    maxAgeMs: maxAgeSeconds * 1000,
    findKept: (addresses) => findSupply(database, addresses),
    keep: (reading) => saveSupply(database, reading),
  });
}
