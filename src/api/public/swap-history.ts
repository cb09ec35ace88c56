/**
 * Routes for the volume, price and value of swap pairs by the hour.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import Type, { type TSchema } from 'typebox';
import { never } from '../../core/abort.ts';
import type { Clock } from '../../core/clock.ts';
import { type Decimal, exactNumber, exactNumberOrNull } from '../../core/decimal.ts';
import { Fault } from '../../core/fault.ts';
import { findIsoTime } from '../../core/iso-time.ts';
import { isCounted, poolPrices, poolValue, type TokenValue, type ValuedPair } from '../../domain/pair.ts';
import { findTipTimes } from '../../store/blocks/blocks.ts';
import type { Database, Db } from '../../store/db/db.ts';
import { findPairStateAt, listHourStates } from '../../store/market/pair-states.ts';
import { areStatesUpToDate, findReadPairs, listFollowingEnds } from '../../store/market/pairs.ts';
import { listVolumeHours } from '../../store/market/swaps.ts';
import { listPrices } from '../../store/prices/prices.ts';
import type { Api } from '../context.ts';
import { createRoom } from '../http/memory-queue.ts';
import { limitParameter } from '../http/paging.ts';
import { type Parsed, parameter } from '../http/parameters.ts';
import { addPublicRoute, json, type PublicAnswer } from '../http/public.ts';
import {
  BEHIND_SECONDS,
  completeHeader,
  staleHeader,
  withCompleteness,
  withHistoryStaleness,
} from './pair-freshness.ts';
import { getPair, PAIR_ID, pairErrors } from './pair-parameter.ts';

const CACHE_SECONDS = 60;
const HOUR_MS = 60 * 60 * 1000;
/** A year of hours. */
const HOURS_MAX = 8_784;
const HOURS_DEFAULT = 168;
/** Hours that are valued in one go. They take a few milliseconds. */
const HOURS_PER_TURN = 200;

const hourAfter = (description: string) =>
  parameter('a time such as 2026-01-31T12:00:00Z', parseHour, Type.String({ description }));

const parameters = {
  pair_id: PAIR_ID,
  from: hourAfter('The first hour, in ISO 8601.'),
  until: hourAfter('The end of the last hour, in ISO 8601. Default: now.'),
  to: { ...hourAfter('The same as `until`.'), aliasOf: 'until' },
  limit: limitParameter(
    HOURS_MAX,
    Type.String({ description: `The maximum number of hours, up to ${HOURS_MAX}.` }),
  ),
};

const VolumeHour = Type.Object({
  hour: Type.String({ description: 'The beginning of the hour, in ISO 8601 UTC.' }),
  volume: Type.Number({ description: 'In USD.' }),
  swaps: Type.Integer(),
});

const PriceHour = Type.Object({
  hour: Type.String({ description: 'The beginning of the hour, in ISO 8601 UTC.' }),
  price: Type.Union([Type.Number(), Type.Null()]),
});

const ValueHour = Type.Object({
  hour: Type.String({ description: 'The beginning of the hour, in ISO 8601 UTC.' }),
  value: Type.Union([Type.Number(), Type.Null()], {
    description:
      'USD for both reserves at the prices in force then; null while a price or the reserves are unknown.',
  }),
  reserves_known: Type.Boolean({
    description:
      'False while the pair was not followed, unless a backfill has read that time, and for hours that end after the newest stored block while that is old.',
  }),
});

/** Up to `limit` hours, from `from` up to but not including `to`. */
type Range = { from: Date; to: Date; limit: number };
type Source = { database: Database; clock: Clock };
type Options = Source & { pairs: ReadonlyMap<string, ValuedPair> };

/** `pairs` by id. */
export function addSwapHistoryRoutes(api: Api, { database, clock, pairs }: Options): void {
  function addHistory(
    {
      name,
      ...route
    }: {
      name: string;
      summary: string;
      answer: TSchema;
      example: unknown;
      answerHeaders: Record<string, string>;
    },
    compute: (source: Source, pair: ValuedPair, range: Range) => Promise<PublicAnswer>,
  ): void {
    const inTurn = createTurns(clock);
    addPublicRoute(api, {
      ...route,
      path: `/api/swap/${name}-history/:pair_id?`,
      errors: pairErrors('Pair'),
      parameters,
      cacheSeconds: CACHE_SECONDS,
      at: () => ceilHour(clock.now()),
      async compute(given, now) {
        const pair = getPair(pairs, given.pair_id, 'Pair not found');
        return inTurn(() => compute({ database, clock }, pair, rangeOf(given, now)));
      },
    });
  }

  addHistory(
    {
      name: 'volume',
      example: [{ hour: '2026-01-31T12:00:00.000Z', volume: 1250.5, swaps: 12 }],
      summary: 'USD swap volume of a pair by the hour',
      answer: Type.Array(VolumeHour),
      answerHeaders: completeHeader('the history has the swaps of the blocks read so far'),
    },
    volumeHistory,
  );
  addHistory(
    {
      name: 'price',
      example: [{ hour: '2026-01-31T12:00:00.000Z', price: 2500.25 }],
      summary: 'Price of a pair at the end of each hour in which it changed',
      answer: Type.Array(PriceHour),
      answerHeaders: staleHeader(
        `the history ends there, and the response is cached for ${BEHIND_SECONDS} seconds`,
      ),
    },
    priceHistory,
  );
  addHistory(
    {
      name: 'value',
      example: [{ hour: '2026-01-31T12:00:00.000Z', value: 5000.5, reserves_known: true }],
      summary: 'USD value of the reserves of a pair at the end of each hour',
      answer: Type.Array(ValueHour),
      answerHeaders: staleHeader(
        `the reserves at the end of later hours are unknown, and the response is cached for ${BEHIND_SECONDS} seconds`,
      ),
    },
    valueHistory,
  );
}

/** Each history reads first how far the stored blocks reach, so that it includes every block up to there. */
async function volumeHistory(
  { database, clock }: Source,
  { id }: ValuedPair,
  range: Range,
): Promise<PublicAnswer> {
  const read = await findReadPairs(database, [id], clock.now());
  const hours = (await listVolumeHours(database, id, range)).map(({ hour, usdValue, swapCount }) => ({
    hour,
    volume: exactNumber(usdValue),
    swaps: swapCount,
  }));
  return withCompleteness(json(hours), read.has(id));
}

async function priceHistory(
  { database, clock }: Source,
  { id }: ValuedPair,
  range: Range,
): Promise<PublicAnswer> {
  const isUpToDate = await areStatesUpToDate(database, clock.now());
  const hours = (await listHourStates(database, id, range)).map(({ hour, price }) => ({
    hour,
    price: exactNumberOrNull(price),
  }));
  return withHistoryStaleness(json(hours), isUpToDate);
}

async function valueHistory(
  { database, clock }: Source,
  pair: ValuedPair,
  range: Range,
): Promise<PublicAnswer> {
  const now = clock.now();
  const isUpToDate = await areStatesUpToDate(database, now);
  const knownUntil = isUpToDate ? now : (await findTipTimes(database))?.minedAt;
  const hours = (await listValueHours(database, pair, { ...range, now, knownUntil })).map(
    ({ hour, value, areReservesKnown }) => ({
      hour,
      value: exactNumberOrNull(value),
      reserves_known: areReservesKnown,
    }),
  );
  return withHistoryStaleness(json(hours), isUpToDate);
}

/** All share one account of the room. */
const EVERYONE = 0;

/**
 * Computes histories one after the other, because each may take a tenth of a second of this thread, and clients can make up any number.
 * @throws Fault `unavailable` when too many wait or one has waited for too long
 */
function createTurns(clock: Clock): <T>(work: () => Promise<T>) => Promise<T> {
  const room = createRoom({ clock, unitsMax: 1, what: 'histories' });
  return async (work) => {
    let end: () => void;
    try {
      end = await room.take(EVERYONE, 1, never);
    } catch (cause) {
      throw new Fault('unavailable', 'too many histories are being computed', { cause });
    }
    try {
      return await work();
    } finally {
      end();
    }
  };
}

type HourValue = { hour: Date; value: Decimal | undefined; areReservesKnown: boolean };

/**
 * The value of the reserves at the end of each hour that has begun, from the first hour with a known state on. A pair keeps its
 * reserves through hours without a change, but prices go on. After following ended, they are unknown until the next stored state, and
 * always after `knownUntil`.
 */
async function listValueHours(
  db: Db,
  pair: ValuedPair,
  { from, to, limit, now, knownUntil }: Range & { now: Date; knownUntil: Date | undefined },
): Promise<HourValue[]> {
  const changes = await listHourStates(db, pair.id, { from, to, limit });
  let state = await findPairStateAt(db, pair.id, from);
  const ends = await listFollowingEnds(db, pair.id);
  const first = state === undefined ? changes[0]?.hour : from;
  if (first === undefined) return [];
  const changeOf = new Map(changes.map((change) => [change.hour.getTime(), change]));
  const count = Math.min(
    limit,
    Math.ceil((Math.min(to.getTime(), now.getTime()) - first.getTime()) / HOUR_MS),
  );
  const hours = Array.from({ length: Math.max(0, count) }, (_, index) => {
    const hour = new Date(first.getTime() + index * HOUR_MS);
    const end = new Date(Math.min(hour.getTime() + HOUR_MS - 1, now.getTime()));
    state = changeOf.get(hour.getTime()) ?? state;
    const isReached = knownUntil !== undefined && end <= knownUntil;
    const isKnown = isReached && state !== undefined && !hasEnded(ends, { after: state.minedAt, until: end });
    return { hour, state: isKnown ? state : undefined, end };
  });
  const times = hours.map(({ end }) => end);
  const usd0 = await pricesAt(db, pair.value0, times);
  const usd1 = await pricesAt(db, pair.value1, times);
  const values: HourValue[] = [];
  for (const [index, { hour, state: reserves }] of hours.entries()) {
    // A year takes a tenth of a second, in which the process has other work.
    if (index % HOURS_PER_TURN === HOURS_PER_TURN - 1) await nextTurn();
    const prices = poolPrices(pair, { usd0: usd0[index], usd1: usd1[index] });
    values.push({
      hour,
      value: prices && reserves && poolValue(pair, reserves, prices),
      areReservesKnown: reserves !== undefined,
    });
  }
  return values;
}

const hasEnded = (ends: readonly Date[], { after, until }: { after: Date; until: Date }) =>
  ends.some((end) => end >= after && end <= until);

/** The prices in force at these times. */
async function pricesAt(db: Db, value: TokenValue, times: readonly Date[]): Promise<(Decimal | undefined)[]> {
  if (value === undefined) return [];
  if ('fixed' in value) return times.map(() => value.fixed);
  const prices = await listPrices(db, value.asset, times);
  return times.map((time, index) => {
    const price = prices[index];
    return price !== undefined && isCounted(value, price.observedAt, time) ? price.price : undefined;
  });
}

/**
 * Whole hours. Without `from`, the last `limit` hours before `until`.
 * @throws Fault `invalid` when the request gives an end before its begin
 */
function rangeOf(
  { from, until, to: sameAsUntil, limit = HOURS_DEFAULT }: Parsed<typeof parameters>,
  now: Date,
): Range {
  const end = until ?? sameAsUntil;
  if (from !== undefined && end !== undefined && from > end)
    throw new Fault('invalid', 'Invalid from parameter: it is after the end');
  const to = end ?? now;
  return { from: from ?? new Date(to.getTime() - limit * HOUR_MS), to, limit };
}

/** The first full hour at or after the time. */
function parseHour(text: string): Date | undefined {
  const time = findIsoTime(text);
  return time && ceilHour(time);
}

const ceilHour = (time: Date) => new Date(Math.ceil(time.getTime() / HOUR_MS) * HOUR_MS);
