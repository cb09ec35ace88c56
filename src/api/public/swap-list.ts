/**
 * Route for the newest swaps of a pair.
 */
import Type from 'typebox';
import { exactNumber } from '../../core/decimal.ts';
import type { ValuedPair } from '../../domain/pair.ts';
import type { Database } from '../../store/db/db.ts';
import { listNewestSwaps } from '../../store/market/swaps.ts';
import type { Api } from '../context.ts';
import { limitParameter } from '../http/paging.ts';
import { addPublicRoute, json } from '../http/public.ts';
import { getPair, PAIR_ID, pairErrors } from './pair-parameter.ts';

const CACHE_SECONDS = 10;
const LIMIT_DEFAULT = 50;
const LIMIT_MAX = 500;

const amount = (description: string) => Type.String({ description: `${description}, in the smallest unit.` });
const SwapJson = Type.Object({
  block_number: Type.Integer(),
  mined_at: Type.String({ description: 'The time of its block, in ISO 8601 UTC.' }),
  hash: Type.String({ description: 'The transaction.' }),
  ordinal: Type.Integer({ description: 'The index of its log in the receipt.' }),
  amount0_in: amount('token0 paid'),
  amount1_in: amount('token1 paid'),
  amount0_out: amount('token0 received'),
  amount1_out: amount('token1 received'),
  usd_value: Type.Union([Type.Number(), Type.Null()], {
    description: 'Null until the valued token has a price of that time.',
  }),
});

type Options = { database: Database; pairs: ReadonlyMap<string, ValuedPair> };

/** `pairs` by id. */
export function addSwapListRoute(api: Api, { database, pairs }: Options): void {
  addPublicRoute(api, {
    path: '/api/swap/swaps/:pair_id?',
    summary: 'The newest swaps of a pair, newest first',
    description: 'Swaps are kept for `retention.swaps`.',
    example: [
      {
        ...{
          block_number: 19_000_000,
          mined_at: '2026-01-31T12:00:00.000Z',
          hash: `0x${'9a'.repeat(32)}`,
          ordinal: 3,
        },
        ...{
          amount0_in: '0',
          amount1_in: '1000000000000000000',
          amount0_out: '2500250000',
          amount1_out: '0',
        },
        usd_value: 2500.25,
      },
    ],
    errors: pairErrors('Pair'),
    parameters: {
      pair_id: PAIR_ID,
      limit: limitParameter(
        LIMIT_MAX,
        Type.String({ description: `The maximum number of swaps, up to ${LIMIT_MAX}.` }),
      ),
    },
    answer: Type.Array(SwapJson),
    cacheSeconds: CACHE_SECONDS,
    async compute({ pair_id: id, limit = LIMIT_DEFAULT }) {
      const pair = getPair(pairs, id, 'Pair not found');
      const swaps = await listNewestSwaps(database, pair.id, limit);
      return json(
        swaps.map((swap) => ({
          ...{ block_number: swap.blockNumber, mined_at: swap.minedAt.toISOString() },
          ...{ hash: swap.txHash, ordinal: swap.ordinal },
          ...{ amount0_in: String(swap.amount0In), amount1_in: String(swap.amount1In) },
          ...{ amount0_out: String(swap.amount0Out), amount1_out: String(swap.amount1Out) },
          usd_value: swap.usdValue === undefined ? null : exactNumber(swap.usdValue),
        })),
      );
    },
  });
}
