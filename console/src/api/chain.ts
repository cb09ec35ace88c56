/**
 * What the whole page knows about the chain: its name, the tokens with their decimals, and the head.
 */

import { effect, type Signal, signal } from '@preact/signals';
import { texts } from '../texts.ts';
import { call, serviceProblem } from './client.ts';
import { createResource, type Loaded, type Resource } from './resource.ts';
import type { Chain, Status } from './types.ts';

const CHAIN_MS = 60_000;
const STATUS_MS = 4_000;

export const chain: Resource<Chain> = createResource(
  'chain',
  (signal) => call('GET /api/chain', { signal }),
  CHAIN_MS,
);
export const status: Resource<Status> = createResource(
  'status',
  (signal) => call('GET /status', { signal }),
  STATUS_MS,
);

export type Asset = { symbol: string; decimals: number | undefined; isKnown: boolean };

/** Symbol and decimals of an asset of a notification: the native symbol, or a token's contract. */
export function assetOf(asset: string): Asset {
  const { data } = chain.state.value;
  if (data === undefined) return { symbol: asset, decimals: undefined, isKnown: false };
  if (asset === data.native_symbol) return { symbol: asset, decimals: data.native_decimals, isKnown: true };
  const token = data.tokens.find(({ address }) => address.toLowerCase() === asset.toLowerCase());
  return token === undefined
    ? { symbol: '', decimals: undefined, isKnown: false }
    : { symbol: symbolOf(token.symbol, data.native_symbol), decimals: token.decimals, isKnown: true };
}

/** Many chains call the wrapped coin as they call the coin. An amount of it must not look like one of the coin. */
const symbolOf = (symbol: string, nativeSymbol: string): string =>
  symbol === nativeSymbol ? texts.tokenNamed(symbol) : symbol;

/** The newest block that any answer named, because an answer of a service in trouble names none. */
export const lastHead: Signal<Head | undefined> = signal(undefined);
effect(() => {
  lastHead.value = headOf(status.state.value) ?? lastHead.peek();
});

effect(() => {
  serviceProblem.value = status.state.value.data?.problem?.message;
});

export type Head = { number: number; minedAt: number };

/** The newest stored block. */
export function headOf({ data }: Loaded<Status>): Head | undefined {
  const cursor = data?.cursor ?? undefined;
  return cursor === undefined ? undefined : { number: cursor.number, minedAt: Date.parse(cursor.mined_at) };
}
