/**
 * A user's month: the total beside last month in words, by category, by day, and the awards.
 */
import { scaleLinear } from 'd3-scale';
import { useEffect, useRef, useState } from 'preact/hooks';
import { ApiError, callExact, loadPages } from '../api/client.ts';
import { type Resource, SLOW_MS, useResource } from '../api/resource.ts';
import type { Data, Exact } from '../api/types.ts';
import { formatDecimal } from '../format/amount.ts';
import { compare, sumOf } from '../format/decimal.ts';
import { formatTick } from '../format/number.ts';
import { longAddress } from '../format/short.ts';
import { formatDay, formatMonth } from '../format/time.ts';
import { AsTable, Chart, Swatch } from '../parts/chart.tsx';
import { Icon } from '../parts/icon.tsx';
import { CopyCurl, Empty, Ghosts, Loading } from '../parts/page.tsx';
import { Copy, Time } from '../parts/values.tsx';
import { zone } from '../state/preferences.ts';
import { isOperator } from '../state/session.ts';
import { texts } from '../texts.ts';

type Award = Exact<Data<'GET /api/points/user'>>[number];
type Category = Exact<Data<'GET /api/points/user-by-category'>>[number];
type Comparison = Exact<Data<'GET /api/points/vs-last-month'>>;

/** Awards of a page. A user with more pages than PAGES_MAX gets no chart of days, because it would be a wrong one. */
const PAGE_AWARDS = 1_000;
const PAGES_MAX = 10;
const AWARDS_SHOWN = 20;
const DECIMALS_MAX = 6;
const HEIGHT = 96;
const LABELS = 20;
/** The sixth color also stands for all further categories. */
const COLORS_MAX = 6;

export function PointsUser({
  user,
  month,
  isPresent,
  categories,
  onClose,
}: {
  user: string;
  month: string;
  isPresent: boolean;
  categories: Resource<Category[]>;
  onClose(): void;
}) {
  const panel = useRef<HTMLElement>(null);
  useEffect(() => panel.current?.focus({ preventScroll: true }), []);
  const query = { month, user };
  const compared = useResource(
    `compared ${user}`,
    (signal) => callExact('GET /api/points/vs-last-month', { query: { user }, signal }),
    { everyMs: SLOW_MS, when: isPresent },
  );
  return (
    <aside class="inspector" aria-label={texts.points.of(longAddress(user))} tabIndex={-1} ref={panel}>
      <h1 class="only-alone">{texts.points.of(longAddress(user))}</h1>
      <div class="detail-top">
        <span class="mono">{longAddress(user)}</span>
        <Copy text={user} label={texts.addresses.copy} />
        <div class="actions">
          <CopyCurl operation="GET /api/points/user" options={{ query }} />
          <button
            type="button"
            class="icon-button"
            aria-label={texts.close}
            title={texts.close}
            onClick={onClose}
          >
            <Icon name="close" />
          </button>
        </div>
      </div>
      <Loading loaded={categories.state.value} reload={categories.reload} ghost={<Ghosts rows={6} />}>
        {(data) =>
          data.length === 0 ? (
            <Empty text={texts.points.noneOf(formatMonth(month))} />
          ) : (
            <>
              <p class="big">
                {formatDecimal(totalOf(data) ?? '0')} <small>{texts.points.unit}</small>
              </p>
              <p class="quiet">{formatMonth(month)}</p>
              {isPresent && compared.state.value.data !== undefined && (
                <Compared comparison={compared.state.value.data.data} />
              )}
              <Categories categories={data} />
              <Awards user={user} month={month} categories={data} />
            </>
          )
        }
      </Loading>
    </aside>
  );
}

/** The points of a user's month by category. */
export const useCategories = (user: string | undefined, month: string): Resource<Category[]> =>
  useResource(
    `points ${user} ${month}`,
    async (signal) => {
      const query = { month, user: user ?? '' };
      return (await orNone(callExact('GET /api/points/user-by-category', { query, signal }))).data;
    },
    { everyMs: SLOW_MS, when: user !== undefined },
  );

/** Their sum; undefined without any. */
export const totalOf = (categories: readonly Category[] = []): string | undefined =>
  categories.length === 0 ? undefined : sumOf(categories.map(({ points }) => points));

/** The API answers 404 for a month or a user without points. */
export async function orNone<T>(
  page: Promise<{ data: T[]; next: string | undefined }>,
): Promise<{ data: T[]; next: string | undefined }> {
  try {
    return await page;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return { data: [], next: undefined };
    throw error;
  }
}

function Compared({ comparison: { current, lastMonth, comparison } }: { comparison: Comparison }) {
  const direction = compare(comparison.difference, '0');
  const size = formatDecimal(comparison.difference.replace('-', ''), DECIMALS_MAX);
  const days = (period: { start: string; end: string }) =>
    texts.points.days(formatDay(Date.parse(period.start), 'utc'), formatDay(Date.parse(period.end), 'utc'));
  return (
    <div class={direction < 0 ? 'quote is-less' : 'quote'}>
      <p>
        <b class="medium">{texts.points.difference(size, direction)}</b>{' '}
        {texts.points.comparedWith(
          formatDecimal(lastMonth.points, DECIMALS_MAX),
          days(lastMonth.period),
          formatDecimal(comparison.percentageChange, 2),
        )}{' '}
        {comparison.isFullMonthComparison ? '' : texts.points.part(days(current.period))}
      </p>
    </div>
  );
}

const colorOf = (index: number) => Math.min(index + 1, COLORS_MAX) as 1 | 2 | 3 | 4 | 5 | 6;

function Categories({ categories }: { categories: readonly Category[] }) {
  // Corrections may be below zero. They have no part of the bar, and no share.
  const sizeOf = (points: string) => Math.max(0, Number(points));
  const total = categories.reduce((sum, { points }) => sum + sizeOf(points), 0) || 1;
  let left = 0;
  return (
    <>
      <h2 class="minor">{texts.points.byCategory}</h2>
      <svg class="meter is-thick" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        {categories.map(({ category, points }, index) => {
          const width = (sizeOf(points) / total) * 100;
          const x = left;
          left += width;
          return (
            <rect
              key={category}
              class={`c-${colorOf(index)}`}
              x={x}
              width={Math.max(0, width - 0.4)}
              height="6"
            />
          );
        })}
      </svg>
      <table>
        <caption class="hidden">{texts.points.byCategory}</caption>
        <thead>
          <tr>
            <th>
              <span class="hidden">{texts.points.category}</span>
            </th>
            <th class="right">{texts.points.points}</th>
            <th>
              <span class="hidden">{texts.points.ofAll}</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {categories.map(({ category, points }, index) => (
            <tr key={category}>
              <th scope="row">
                <span class="legend">
                  <span>
                    <Swatch color={colorOf(index)} />
                    {category}
                  </span>
                </span>
              </th>
              <td class="right">{formatDecimal(points, DECIMALS_MAX)}</td>
              <td class="right quiet">
                {Number(points) < 0 ? texts.none : `${((sizeOf(points) / total) * 100).toFixed(1)} %`}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </>
  );
}

function Awards({
  user,
  month,
  categories,
}: {
  user: string;
  month: string;
  categories: readonly Category[];
}) {
  const awards = useResource(`awards ${user} ${month}`, (signal) => loadAwards(user, month, signal), {
    everyMs: SLOW_MS,
  });
  const { data } = awards.state.value;
  return (
    <Loading loaded={awards.state.value} reload={awards.reload} ghost={<Ghosts rows={4} />}>
      {() => (
        <>
          {data?.isWhole === true && <Days awards={data.awards} month={month} categories={categories} />}
          <h2 class="minor">{texts.points.newest}</h2>
          <table>
            <caption class="hidden">{texts.points.newest}</caption>
            <thead>
              <tr>
                <th>
                  <span class="hidden">{texts.points.category}</span>
                </th>
                <th class="right">{texts.points.points}</th>
                <th class="right">{texts.timeIn(zone.value)}</th>
              </tr>
            </thead>
            <tbody>
              {data?.awards.slice(0, AWARDS_SHOWN).map((award, index) => (
                <tr key={`${award.hash} ${index}`}>
                  <th scope="row">
                    {isOperator.value ? (
                      <a class="link" href={`/console/explain/${award.hash}`}>
                        {award.category}
                      </a>
                    ) : (
                      award.category
                    )}
                  </th>
                  <td class="right">
                    {award.points.startsWith('-') ? '' : '+'}
                    {formatDecimal(award.points, DECIMALS_MAX)}
                  </td>
                  <td class="right quiet" data-head={texts.timeIn(zone.value)}>
                    <Time at={award.created_at} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </>
      )}
    </Loading>
  );
}

async function loadAwards(
  user: string,
  month: string,
  signal: AbortSignal,
): Promise<{ awards: Award[]; isWhole: boolean }> {
  const loadPage = (cursor: string | undefined) =>
    orNone(callExact('GET /api/points/user', { query: { month, user, limit: PAGE_AWARDS, cursor }, signal }));
  const { data: awards, isWhole } = await loadPages<Award>(loadPage, PAGES_MAX);
  return { awards, isWhole };
}

function Days({
  awards,
  month,
  categories,
}: {
  awards: readonly Award[];
  month: string;
  categories: readonly Category[];
}) {
  const [cursor, setCursor] = useState<number | undefined>(undefined);
  const days = daysOf(awards, month, categories);
  const most = Math.max(1, ...days.map((day) => day.reduce((sum, value) => sum + value, 0)));
  const y = scaleLinear().domain([0, most]).nice(2).range([HEIGHT, 4]);
  const pointsOf = (day: number) =>
    sumOf(
      awards.filter(({ created_at: at }) => Number(at.slice(8, 10)) === day + 1).map(({ points }) => points),
    );
  const name = (day: number) => `${day + 1} ${formatMonth(month)}`;
  return (
    <>
      <h2 class="minor">
        {texts.points.byDay}
        <span class="quiet num">
          {cursor === undefined
            ? texts.points.utcDays
            : `${name(cursor)}: ${formatDecimal(pointsOf(cursor), DECIMALS_MAX)}`}
        </span>
      </h2>
      <Chart
        label={texts.points.dayLabel(formatMonth(month), days.length)}
        height={HEIGHT + LABELS}
        count={days.length}
        cursor={cursor}
        onCursor={setCursor}
      >
        {(width) => {
          const step = width / days.length;
          return (
            <>
              {y.ticks(2).map((tick) => (
                <g key={tick}>
                  <line class={tick === 0 ? 'zero' : 'grid'} x1={0} x2={width} y1={y(tick)} y2={y(tick)} />
                  <text x={width + 8} y={y(tick) + 4}>
                    {formatTick(tick)}
                  </text>
                </g>
              ))}
              {days.map((values, day) => {
                let top = HEIGHT;
                return (
                  <g key={day} class={cursor === undefined || cursor === day ? '' : 'is-faded'}>
                    {values.map((value, index) => {
                      const height = HEIGHT - y(value);
                      top -= height;
                      return (
                        <rect
                          key={categories[index]?.category}
                          class={`c-${colorOf(index)}`}
                          x={day * step + 1}
                          y={top}
                          width={Math.max(1, step - 2)}
                          height={height}
                        />
                      );
                    })}
                    {day % 7 === 0 && (
                      <text x={day * step + 1} y={HEIGHT + LABELS - 4}>
                        {day + 1}
                      </text>
                    )}
                  </g>
                );
              })}
            </>
          );
        }}
      </Chart>
      <AsTable
        caption={texts.points.byDay}
        head={[texts.points.day, texts.points.points]}
        rows={days.map((_, day) => [name(day), formatDecimal(pointsOf(day))])}
      />
    </>
  );
}

/** Points for each day of the month and each category, for drawing only: a sum below zero, of corrections, has no height. */
function daysOf(awards: readonly Award[], month: string, categories: readonly Category[]): number[][] {
  const [year = 0, number = 1] = month.split('-').map(Number);
  const count = new Date(Date.UTC(year, number, 0)).getUTCDate();
  const days = Array.from({ length: count }, () => categories.map(() => 0));
  for (const { category, points, created_at: at } of awards) {
    const day = days[Number(at.slice(8, 10)) - 1];
    const index = categories.findIndex((one) => one.category === category);
    if (day !== undefined && index !== -1) day[index] = (day[index] ?? 0) + Number(points);
  }
  return days.map((day) => day.map((value) => Math.max(0, value)));
}
