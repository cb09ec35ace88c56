/**
 * Points: the leaderboard of a month, and a user's month beside it.
 */

import { useCallback, useRef } from 'preact/hooks';
import { useLocation, useRoute } from 'preact-iso';
import { callExact } from '../api/client.ts';
import { SLOW_MS, useResource } from '../api/resource.ts';
import { formatDecimal } from '../format/amount.ts';
import { formatMonth, shiftMonth } from '../format/time.ts';
import { AddressSearch } from '../parts/address-search.tsx';
import { Meter } from '../parts/chart.tsx';
import { Icon } from '../parts/icon.tsx';
import { CopyCurl, Empty, Loading, PageHead, usePageQuery } from '../parts/page.tsx';
import { focusRow, LinkRow, Table } from '../parts/table.tsx';
import { Address, isSame } from '../parts/values.tsx';
import { serverNow } from '../state/clock.ts';
import { useShortcut } from '../state/shortcuts.ts';
import { texts } from '../texts.ts';
import { orNone, PointsUser, totalOf, useCategories } from './points-user.tsx';

const PAGE_ROWS = 50;
const DECIMALS_MAX = 3;
/** The first page needs none of these parameters. */
const FIRST_PAGE = { cursor: undefined, rank: undefined, most: undefined };

export function Points() {
  const { params } = useRoute();
  const { route } = useLocation();
  const { query, hrefWith } = usePageQuery();
  const user = params.user === undefined || params.user === '' ? undefined : params.user;
  const present = new Date(serverNow()).toISOString().slice(0, 'YYYY-MM'.length);
  const month = /^\d{4}-(?:0[1-9]|1[0-2])$/.test(query.month ?? '') ? (query.month ?? present) : present;
  const rankFrom = /^[1-9]\d{0,8}$/.test(query.rank ?? '') ? Number(query.rank) : 1;
  // Of the first rank, beside which the bars of all pages stand.
  const most = (leaders: readonly { points: string }[]) => query.most ?? leaders[0]?.points;
  const options = { query: { month, limit: PAGE_ROWS, cursor: query.cursor } };
  const leaders = useResource(
    `leaders ${month} ${query.cursor ?? ''}`,
    (signal) => orNone(callExact('GET /api/points/leaderboard', { ...options, signal })),
    { everyMs: SLOW_MS },
  );
  const categories = useCategories(user, month);
  // Newer than the list. The row of the open user shows the same points as the panel.
  const opened = user === undefined ? undefined : { user, points: totalOf(categories.state.value.data) };
  const search = hrefWith({}).split('?')[1];
  const hrefOf = (one: string | undefined) =>
    `/console/points${one === undefined ? '' : `/${one}`}${search === undefined ? '' : `?${search}`}`;
  const list = useRef<HTMLDivElement>(null);
  const close = useCallback(() => {
    route(hrefOf(undefined));
    setTimeout(() => focusRow(list.current, `/console/points/${user}`));
  }, [route, hrefOf]);
  useShortcut('Escape', user === undefined ? undefined : close);
  const toMonth = (offset: number) => hrefWith({ month: shiftMonth(month, offset), ...FIRST_PAGE });
  return (
    <div class={user === undefined ? '' : 'split has-detail'}>
      <div class="list" ref={list}>
        <PageHead title={texts.points.title} note={texts.points.note}>
          <a
            class="icon-button"
            href={toMonth(-1)}
            aria-label={texts.points.before}
            title={texts.points.before}
          >
            <Icon name="left" />
          </a>
          <b class="medium">{formatMonth(month)}</b>
          {month < present && (
            <a
              class="icon-button"
              href={toMonth(1)}
              aria-label={texts.points.after}
              title={texts.points.after}
            >
              <Icon name="right" />
            </a>
          )}
          {user === undefined && <CopyCurl operation="GET /api/points/leaderboard" options={options} />}
        </PageHead>
        <AddressSearch
          label={texts.points.find}
          value={user ?? ''}
          onSearch={(found) => route(hrefOf(found))}
        />
        <Loading loaded={leaders.state.value} reload={leaders.reload}>
          {({ data, next }) => (
            <>
              {data.length === 0 ? (
                <Empty text={texts.points.none(formatMonth(month))}>
                  <p class="actions">
                    {othersThan(month, present).map((other) => (
                      <a key={other} class="link" href={hrefWith({ month: other, ...FIRST_PAGE })}>
                        {formatMonth(other)}
                      </a>
                    ))}
                  </p>
                </Empty>
              ) : (
                <Leaders
                  leaders={data}
                  rankFrom={rankFrom}
                  most={most(data)}
                  opened={opened}
                  hrefOf={hrefOf}
                />
              )}
              <p class="below">
                {data.length > 0 && texts.points.ranks(rankFrom, rankFrom + data.length - 1)}
                {query.cursor !== undefined && (
                  <a class="link" href={hrefWith(FIRST_PAGE)}>
                    {texts.firstPage}
                  </a>
                )}
                {next !== undefined && (
                  <a
                    class="link"
                    href={hrefWith({ cursor: next, rank: String(rankFrom + data.length), most: most(data) })}
                  >
                    {texts.nextPage}
                  </a>
                )}
              </p>
            </>
          )}
        </Loading>
      </div>
      {user !== undefined && (
        <PointsUser
          key={`${user} ${month}`}
          user={user}
          month={month}
          isPresent={month === present}
          categories={categories}
          onClose={close}
        />
      )}
    </div>
  );
}

/** The months beside this one, and the present one. */
function othersThan(month: string, present: string): string[] {
  const others = [shiftMonth(month, -1), shiftMonth(month, 1), present];
  return [...new Set(others)].filter((one) => one <= present && one !== month);
}

function Leaders({
  leaders,
  rankFrom,
  most,
  opened,
  hrefOf,
}: {
  leaders: readonly { user: string; points: string }[];
  rankFrom: number;
  most: string | undefined;
  opened: { user: string; points: string | undefined } | undefined;
  hrefOf(user: string): string;
}) {
  const largest = Number(most) || 1;
  return (
    <Table caption={texts.points.caption}>
      <thead>
        <tr>
          <th class="right narrow">{texts.points.rank}</th>
          <th>{texts.points.user}</th>
          <th class="right">{texts.points.points}</th>
          <th>
            <span class="hidden">{texts.points.share}</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {leaders.map((one, index) => {
          const isOpen = isSame(one.user, opened?.user);
          const points = (isOpen ? opened?.points : undefined) ?? one.points;
          return (
            <LinkRow key={one.user} isCurrent={isOpen}>
              <td class="right quiet">{rankFrom + index}</td>
              <th scope="row">
                <a class="row-link" href={hrefOf(one.user)}>
                  <Address value={one.user} isLong isOwn />
                </a>
              </th>
              <td class="right medium" title={points}>
                {formatDecimal(points, DECIMALS_MAX)}
              </td>
              <td class="bar-cell">
                <Meter share={Math.min(1, Number(points) / largest)} />
              </td>
            </LinkRow>
          );
        })}
      </tbody>
    </Table>
  );
}
