/**
 * What users have earned: leaderboard, awards, totals, this month beside the last one. Spec 2.1, 4.1 and 7.
 */
import type { FastifyRequest } from 'fastify';
import { type TSchema, Type } from 'typebox';
import type { Clock } from '../../core/clock.ts';
import { type Decimal, decimal, exactNumber, percentOf } from '../../core/decimal.ts';
import { Fault } from '../../core/fault.ts';
import { type Address, parseAddress } from '../../core/hex.ts';
import {
  comparisonAt,
  type Month,
  monthOf,
  monthPeriod,
  type Period,
  parseMonth,
} from '../../domain/month.ts';
import type { Database } from '../../store/db/db.ts';
import {
  findComparedTotals,
  findMonthTotal,
  listCategoryTotals,
  type OnPiece,
  type Page,
  renderAwardPage,
  renderAwards,
  renderLeaderPage,
  renderLeaders,
} from '../../store/points/point-lists.ts';
import type { Api } from '../context.ts';
import { createLargeBody } from '../http/cached-response.ts';
import { readOptional } from '../http/parameters.ts';
import { addPublicRoute, json, jsonText, type PublicAnswer } from '../http/public.ts';
import { formatAwardPlace, formatLeaderPlace, parseAwardPlace, parseLeaderPlace } from './point-cursors.ts';

const LIMIT_MAX = 1_000;

const MonthText = Type.String({ pattern: '^\\d{4}-\\d{2}$', examples: ['2026-01'] });
const UserText = Type.String({ pattern: '^0[xX][0-9a-fA-F]{40}$' });
const Limit = Type.Optional(Type.Integer({ minimum: 1, maximum: LIMIT_MAX }));
const Cursor = Type.Optional(Type.String());
const Time = Type.String({ format: 'date-time' });
const PeriodJson = Type.Object({ start: Time, end: Time });
const Leader = Type.Object({ user: Type.String(), points: Type.Number() });
const Point = Type.Object({
  category: Type.String(),
  points: Type.Number(),
  created_at: Time,
  hash: Type.String(),
});
const Category = Type.Object({ category: Type.String(), points: Type.Number() });
const Total = Type.Object({ points: Type.Number() });
const PeriodTotal = Type.Object({ points: Type.Number(), period: PeriodJson });
const ComparisonJson = Type.Object({
  current: PeriodTotal,
  lastMonth: PeriodTotal,
  comparison: Type.Object({
    difference: Type.Number(),
    percentageChange: Type.Number(),
    isFullMonthComparison: Type.Boolean(),
  }),
});

const user = `0x${'11'.repeat(20)}`;
const errorsOf = (parameter: string) => ({
  400: `Missing ${parameter} parameter`,
  404: 'Points not found',
});

type Options = { database: Database; clock: Clock };

/** Limit and cursor of a request for a part of a list; without either it is the whole list. */
type Part = { limit: string | undefined; cursor: string | undefined };

export function addPointRoutes(api: Api, { database, clock }: Options): void {
  addPointRoute<Part & { month: Month }>(api, {
    name: 'leaderboard',
    example: [{ user, points: 1250.5 }],
    errors: errorsOf('month'),
    summary: 'The users with points in a month, most points first',
    answer: Type.Array(Leader),
    querystring: Type.Object({ month: MonthText, limit: Limit, cursor: Cursor }),
    cacheSeconds: 300,
    read: (request) => ({ month: readMonth(request), ...readPart(request, parseLeaderPlace) }),
    async answerTo({ month, limit, cursor }) {
      if (limit === undefined) return listAnswer((onPiece) => renderLeaders(database, month, onPiece));
      const after = cursor === undefined ? undefined : parseLeaderPlace(cursor);
      const page = await renderLeaderPage(database, month, { after, limit: Number(limit) });
      return pageAnswer(page, {
        isFirst: after === undefined,
        limit,
        next: (last) => linkTo('leaderboard', { month, limit, cursor: formatLeaderPlace(last) }),
      });
    },
  });

  addPointRoute<Part & { month: Month; user: Address }>(api, {
    name: 'user',
    example: [
      {
        category: 'trading',
        points: 12.5,
        created_at: '2026-01-31T12:00:00.000Z',
        hash: `0x${'9a'.repeat(32)}`,
      },
    ],
    errors: errorsOf('month'),
    summary: "A user's awards in a month, newest first",
    answer: Type.Array(Point),
    querystring: Type.Object({ month: MonthText, user: UserText, limit: Limit, cursor: Cursor }),
    cacheSeconds: 300,
    read: (request) => ({ ...readMonthAndUser(request), ...readPart(request, parseAwardPlace) }),
    async answerTo({ month, user, limit, cursor }) {
      const of = { user, period: monthPeriod(month) };
      if (limit === undefined) return listAnswer((onPiece) => renderAwards(database, of, onPiece));
      const after = cursor === undefined ? undefined : parseAwardPlace(cursor);
      const page = await renderAwardPage(database, of, { after, limit: Number(limit) });
      return pageAnswer(page, {
        isFirst: after === undefined,
        limit,
        next: (last) => linkTo('user', { month, user, limit, cursor: formatAwardPlace(last) }),
      });
    },
  });

  addPointRoute<{ month: Month; user: Address }>(api, {
    name: 'user-by-category',
    example: [
      { category: 'trading', points: 1000 },
      { category: 'staking', points: 250.5 },
    ],
    errors: errorsOf('month'),
    summary: 'What a user earned in a month by category, most points first',
    answer: Type.Array(Category),
    querystring: Type.Object({ month: MonthText, user: UserText }),
    cacheSeconds: 30,
    read: readMonthAndUser,
    async answerTo({ month, user }) {
      const totals = await listCategoryTotals(database, user, monthPeriod(month));
      if (totals.length === 0) throw notFound();
      return json(totals.map(({ category, points }) => ({ category, points: exactNumber(points) })));
    },
  });

  // With the day in what is asked for, no answer outlives its period.
  addPointRoute<{ month: Month; user: Address }>(api, {
    name: 'user-by-current-month',
    example: { points: 1250.5 },
    errors: errorsOf('user'),
    summary: 'What a user has earned in the current month',
    answer: Total,
    querystring: Type.Object({ user: UserText }),
    cacheSeconds: 60,
    read: (request) => ({ month: monthOf(clock.now()), user: readUser(request) }),
    async answerTo({ month, user }) {
      const points = await findMonthTotal(database, user, month);
      if (points === undefined) throw notFound();
      return json({ points: exactNumber(points) });
    },
  });

  addPointRoute<{ day: string; user: Address }>(api, {
    name: 'vs-last-month',
    example: {
      current: {
        points: 120,
        period: { start: '2026-02-01T00:00:00.000Z', end: '2026-02-19T23:59:59.999Z' },
      },
      lastMonth: {
        points: 80,
        period: { start: '2026-01-01T00:00:00.000Z', end: '2026-01-19T23:59:59.999Z' },
      },
      comparison: { difference: 40, percentageChange: 50, isFullMonthComparison: false },
    },
    errors: errorsOf('user'),
    summary: 'What a user has earned in the current month beside the same part of the month before',
    answer: ComparisonJson,
    querystring: Type.Object({ user: UserText }),
    cacheSeconds: 60,
    read: (request) => ({ day: clock.now().toISOString().slice(0, 10), user: readUser(request) }),
    async answerTo({ day, user }) {
      const compared = comparisonAt(new Date(day));
      const totals = await findComparedTotals(database, user, compared);
      if (totals === undefined) throw notFound();
      const { current, lastMonth } = totals;
      return json({
        current: { points: exactNumber(current), period: periodJson(compared.current) },
        lastMonth: { points: exactNumber(lastMonth), period: periodJson(compared.lastMonth) },
        comparison: {
          difference: exactNumber(current.minus(lastMonth)),
          percentageChange: exactNumber(percentageChange(current, lastMonth)),
          isFullMonthComparison: compared.isFullMonth,
        },
      });
    },
  });
}

type PointRoute<Wanted> = {
  name: string;
  summary: string;
  example: unknown;
  errors: Record<number, string>;
  answer: TSchema;
  querystring: TSchema;
  cacheSeconds: number;
  /** What the request asks for: texts, in one form each. */
  read(request: FastifyRequest): Wanted;
  answerTo(wanted: Wanted): Promise<PublicAnswer>;
};

function addPointRoute<Wanted>(api: Api, route: PointRoute<Wanted>): void {
  const { name, read, answerTo, ...rest } = route;
  addPublicRoute(api, {
    ...rest,
    path: pathOf(name),
    key: (request) => JSON.stringify(read(request)),
    compute(key) {
      const wanted: Wanted = JSON.parse(key);
      return answerTo(wanted);
    },
  });
}

const readMonth = (request: FastifyRequest): Month => readRequired(request, 'month', parseMonth);
const readUser = (request: FastifyRequest): Address =>
  readRequired(request, 'user', (text) => {
    // With 0x only (spec 2.1).
    if (!/^0x/i.test(text)) throw new Fault('invalid', 'must begin with 0x');
    return parseAddress(text);
  });
const readMonthAndUser = (request: FastifyRequest) => ({
  month: readMonth(request),
  user: readUser(request),
});

function readPart(request: FastifyRequest, parsePlace: (text: string) => unknown): Part {
  const limit = readOptional(request, 'limit', parseLimit);
  const cursor = readOptional(request, 'cursor', (text) => {
    parsePlace(text);
    return text;
  });
  return { limit: limit ?? (cursor === undefined ? undefined : String(LIMIT_MAX)), cursor };
}

function parseLimit(text: string): string {
  const isLimit = /^[1-9]\d{0,3}$/.test(text) && Number(text) <= LIMIT_MAX;
  if (!isLimit) throw new Fault('invalid', `must be a whole number from 1 to ${LIMIT_MAX}`);
  return text;
}

function readRequired<T>(request: FastifyRequest, name: string, parse: (text: string) => T): T {
  const value = readOptional(request, name, parse);
  if (value === undefined) throw new Fault('invalid', `Missing ${name} parameter`);
  return value;
}

async function listAnswer(render: (onPiece: OnPiece) => Promise<void>): Promise<PublicAnswer> {
  const body = createLargeBody();
  let before = '[';
  await render((entries) => {
    body.add(`${before}${entries}`);
    before = ',';
  });
  if (before === '[') throw notFound();
  body.add(']');
  return jsonText(body);
}

/** Behind the end of a list there is nothing, which is no fault. */
function pageAnswer<Place>(
  page: Page<Place>,
  { isFirst, limit, next }: { isFirst: boolean; limit: string; next(last: Place): string },
): PublicAnswer {
  if (page === undefined && isFirst) throw notFound();
  const answer = jsonText(`[${page?.entries ?? ''}]`);
  if (page === undefined || page.count < Number(limit)) return answer;
  return { ...answer, headers: { link: next(page.last) } };
}

/** Leads to the next page by the header that RFC 8288 has for it. */
const linkTo = (name: string, query: Record<string, string>) =>
  `<${pathOf(name)}?${new URLSearchParams(query).toString()}>; rel="next"`;

const pathOf = (name: string) => `/api/points/${name}`;
const notFound = () => new Fault('not_found', 'Points not found');
const periodJson = ({ start, end }: Period) => ({ start: start.toISOString(), end: end.toISOString() });

/** In percent of what there was last month, whatever its sign; 100 (or -100) where there was nothing. */
function percentageChange(current: Decimal, lastMonth: Decimal): Decimal {
  if (lastMonth.eq(0)) return decimal(String(Math.sign(current.cmp(lastMonth)) * 100));
  return percentOf(current.minus(lastMonth), lastMonth.abs());
}
