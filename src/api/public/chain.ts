/**
 * The route that says which chain is followed and what this service offers, from which clients make labels and amounts.
 */
import { Type } from 'typebox';
import packageJson from '../../../package.json' with { type: 'json' };
import { measureBlockTime } from '../../store/blocks/block-time.ts';
import type { Database } from '../../store/db/db.ts';
import type { Api, ChainDescription } from '../context.ts';
import { addPublicRoute, json } from '../http/public.ts';

const CACHE_SECONDS = 10;
const NATIVE_DECIMALS = 18;

const Chain = Type.Object(
  {
    id: Type.Integer({ description: 'EIP-155 chain id.' }),
    name: Type.String(),
    native_symbol: Type.String(),
    native_decimals: Type.Integer(),
    version: Type.String({ description: 'Version of Chainbell.' }),
    block_time_ms: Type.Union([Type.Integer(), Type.Null()], {
      description: 'Median time between the newest 100 stored blocks. Null if it is not known yet.',
    }),
    has: Type.Object(
      {
        points: Type.Boolean(),
        prices: Type.Boolean(),
        pairs: Type.Boolean(),
        supply: Type.Boolean(),
        admin: Type.Boolean(),
      },
      { description: 'What the configuration turns on.' },
    ),
    tokens: Type.Array(
      Type.Object({ address: Type.String(), symbol: Type.String(), decimals: Type.Integer() }),
      { description: 'Tokens whose symbol and decimals the configuration names.' },
    ),
  },
  { title: 'Chain' },
);

const example = {
  ...{ id: 1, name: 'Ethereum', native_symbol: 'ETH', native_decimals: NATIVE_DECIMALS },
  ...{ version: '0.1.0', block_time_ms: 12_000 },
  has: { points: true, prices: true, pairs: true, supply: false, admin: true },
  tokens: [{ address: `0x${'33'.repeat(20)}`, symbol: 'USDT', decimals: 6 }],
};

type Options = { database: Database; chain: ChainDescription; nativeSymbol: string };

export function addChainRoute(api: Api, { database, chain, nativeSymbol }: Options): void {
  addPublicRoute(api, {
    path: '/api/chain',
    summary: 'The followed chain, and what this service offers',
    answer: Chain,
    example,
    cacheSeconds: CACHE_SECONDS,
    async compute() {
      const blockTimeMs = await measureBlockTime(database);
      return json({
        ...{ id: chain.id, name: chain.name },
        ...{ native_symbol: nativeSymbol, native_decimals: NATIVE_DECIMALS },
        ...{ version: packageJson.version, block_time_ms: blockTimeMs ?? null },
        ...{ has: chain.has, tokens: chain.tokens },
      });
    },
  });
}
