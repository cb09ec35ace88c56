/**
 * Routes for points: leaderboard, awards of a user, totals, and the current month compared with the previous one (spec 2.1, 4.1
 * and 7).
 */
import { Type } from 'typebox';
import type { Clock } from '../../core/clock.ts';
import { type Decimal, decimal, exactNumber, percentOf } from '../../core/decimal.ts';
import { Fault } from '../../core/fault.ts';
import { parseAddress } from '../../core/hex.ts';
import { comparisonAt, monthOf, monthPeriod, type Period, parseMonth } from '../../domain/month.ts';
import type { Database } from '../../store/db/db.ts';
import {
  findComparedTotals,
  findMonthTotal,
  type ListReader,
  listCategoryTotals,
  type Page,
  renderAwardPage,
  renderAwards,
  renderLeaderPage,
  renderLeaders,
} from '../../store/points/point-lists.ts';
import type { Api } from '../context.ts';
import { createLargeBodies, LARGE_BYTES_MAX, type LargeBodies } from '../http/large-bodies.ts';
import { cursorParameter, limitParameter, nextLink } from '../http/paging.ts';
import { parameter, required } from '../http/parameters.ts';
import { addPublicRoute, json, jsonText, type PublicAnswer } from '../http/public.ts';
import { formatAwardPlace, formatLeaderPlace, parseAwardPlace, parseLeaderPlace } from './point-cursors.ts';

const LIMIT_MAX = 1_000;

const MONTH = required(
  parameter('a month', parseMonth, Type.String({ pattern: '^\\d{4}-\\d{2}$', examples: ['2026-01'] })),
);
/** The prefix 0x is required (spec 2.1). */
const USER = required(
  parameter(
    'an address with 0x',
    (text) => (/^0x/i.test(text) ? parseAddress(text) : undefined),
    Type.String({ pattern: '^0[xX][0-9a-fA-F]{40}$' }),
  ),
);
const LIMIT = limitParameter(LIMIT_MAX, Type.Integer({ minimum: 1, maximum: LIMIT_MAX }));

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

const EXAMPLE_USER = `0x${'11'.repeat(20)}`;
const errorsOf = (parameterName: string) => ({
  400: `Missing ${parameterName} parameter`,
  404: 'Points not found',
});

const answerHeaders = { link: 'With a limit: `rel="next"` leads to the next page.' };

type Options = { database: Database; clock: Clock };
type ListOptions = { database: Database; bodies: LargeBodies };

export function addPointRoutes(api: Api, options: Options & { largeBytesMax?: number }): void {
  const { database, largeBytesMax = LARGE_BYTES_MAX } = options;
  const bodies = createLargeBodies(largeBytesMax);
  addLeaderboard(api, { database, bodies });
  addUserAwards(api, { database, bodies });
  addUserCategories(api, options);
  addUserTotal(api, options);
  addComparison(api, options);
}

function addLeaderboard(api: Api, { database, bodies }: ListOptions): void {
  const path = '/api/points/leaderboard';
  addPublicRoute(api, {
    path,
    example: [{ user: EXAMPLE_USER, points: 1250.5 }],
    errors: errorsOf('month'),
    summary: 'The users with points in a month, most points first',
    answer: Type.Array(Leader),
    answerHeaders,
    parameters: { month: MONTH, limit: LIMIT, cursor: cursorParameter(parseLeaderPlace) },
    cacheSeconds: 300,
    async compute({ month, limit: given, cursor: after }) {
      const limit = pageSize(given, after);
      if (limit === undefined) return listAnswer(bodies, (reader) => renderLeaders(database, month, reader));
      const page = await renderLeaderPage(database, month, { after, limit });
      return pageAnswer(page, {
        isFirst: after === undefined,
        limit,
        next: (last) => nextLink(path, { month, limit, cursor: formatLeaderPlace(last) }),
      });
    },
  });
}

function addUserAwards(api: Api, { database, bodies }: ListOptions): void {
  const path = '/api/points/user';
  addPublicRoute(api, {
    path,
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
    answerHeaders,
    parameters: { month: MONTH, user: USER, limit: LIMIT, cursor: cursorParameter(parseAwardPlace) },
    cacheSeconds: 300,
    async compute({ month, user, limit: given, cursor: after }) {
      const limit = pageSize(given, after);
      const of = { user, period: monthPeriod(month) };
      if (limit === undefined) return listAnswer(bodies, (reader) => renderAwards(database, of, reader));
      const page = await renderAwardPage(database, of, { after, limit });
      return pageAnswer(page, {
        isFirst: after === undefined,
        limit,
        next: (last) => nextLink(path, { month, user, limit, cursor: formatAwardPlace(last) }),
      });
    },
  });
}

function addUserCategories(api: Api, { database }: Options): void {
  addPublicRoute(api, {
    path: '/api/points/user-by-category',
    example: [
      { category: 'trading', points: 1000 },
      { category: 'staking', points: 250.5 },
    ],
    errors: errorsOf('month'),
    summary: "A user's points in a month by category, most points first",
    answer: Type.Array(Category),
    parameters: { month: MONTH, user: USER },
    cacheSeconds: 30,
    async compute({ month, user }) {
      const totals = await listCategoryTotals(database, user, monthPeriod(month));
      if (totals.length === 0) throw notFound();
      return json(totals.map(({ category, points }) => ({ category, points: exactNumber(points) })));
    },
  });
}

function addUserTotal(api: Api, { database, clock }: Options): void {
  addPublicRoute(api, {
    path: '/api/points/user-by-current-month',
    example: { points: 1250.5 },
    errors: errorsOf('user'),
    summary: "A user's points in the current month",
    answer: Total,
    parameters: { user: USER },
    cacheSeconds: 60,
    // The month is part of the cache key, so that no response is served after it. Other caches may keep one for the minute of spec 4.1.
    at: () => monthOf(clock.now()),
    async compute({ user }, month) {
      const points = await findMonthTotal(database, user, month);
      if (points === undefined) throw notFound();
      return json({ points: exactNumber(points) });
    },
  });
}

function addComparison(api: Api, { database, clock }: Options): void {
  addPublicRoute(api, {
    path: '/api/points/vs-last-month',
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
    summary: "A user's points in the current month compared with the same part of the previous month",
    answer: ComparisonJson,
    parameters: { user: USER },
    cacheSeconds: 60,
    // The day is part of the cache key, so that no response is served after it. Other caches may keep one for the minute of spec 4.1.
    at: () => clock.now().toISOString().slice(0, 10),
    async compute({ user }, day) {
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

/** The number of entries of a page. Undefined without limit and cursor, which means the whole list. */
const pageSize = (limit: number | undefined, after: object | undefined): number | undefined =>
  limit ?? (after === undefined ? undefined : LIMIT_MAX);

async function listAnswer(
  bodies: LargeBodies,
  render: (reader: ListReader) => Promise<void>,
): Promise<PublicAnswer> {
  const body = bodies.open();
  let before = '[';
  try {
    await render({
      bytesMax: bodies.bytesMax,
      onPiece(entries) {
        body.add(`${before}${entries}`);
        before = ',';
      },
    });
    if (before === '[') throw notFound();
    body.add(']');
  } catch (error) {
    body.drop();
    throw error;
  }
  return jsonText(body);
}

/** An empty first page is a 404. A later page past the end is an empty list. */
function pageAnswer<Place>(
  page: Page<Place>,
  { isFirst, limit, next }: { isFirst: boolean; limit: number; next(last: Place): string },
): PublicAnswer {
  if (page === undefined && isFirst) throw notFound();
  const answer = jsonText(`[${page?.entries ?? ''}]`);
  if (page === undefined || page.count < limit) return answer;
  return { ...answer, headers: { link: next(page.last) } };
}

const notFound = () => new Fault('not_found', 'Points not found');
const periodJson = ({ start, end }: Period) => ({ start: start.toISOString(), end: end.toISOString() });

/** In percent of last month's absolute value. 100 or -100 if last month's is 0, and 0 if both are. */
function percentageChange(current: Decimal, lastMonth: Decimal): Decimal {
  if (lastMonth.eq(0)) return decimal(String(Math.sign(current.cmp(lastMonth)) * 100));
  return percentOf(current.minus(lastMonth), lastMonth.abs());
}
