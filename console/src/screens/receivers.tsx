/**
 * Receivers, one row for each URL's origin: how well and how fast each answers, what waits for it, and what its trouble does to it
 * and to no other one.
 */
import { useRef, useState } from 'preact/hooks';
import { call, callPage } from '../api/client.ts';
import { FAILING_MAX, useFailing } from '../api/failing.ts';
import { useResource } from '../api/resource.ts';
import type { Receiver, ReceiverStatistics } from '../api/types.ts';
import { formatCount, formatDuration, formatShare } from '../format/number.ts';
import { hostOf } from '../format/short.ts';
import { isTroubled, reasonOf } from '../parts/attention.tsx';
import { isSmall } from '../parts/delivery-row.tsx';
import { Icon } from '../parts/icon.tsx';
import {
  Choice,
  CopyCurl,
  Empty,
  Loading,
  PageHead,
  PageLinks,
  PeriodChoice,
  periodOf,
  usePageQuery,
} from '../parts/page.tsx';
import { ReceiverState, receiverLook } from '../parts/state.tsx';
import { LinkRow, Table } from '../parts/table.tsx';
import { Age, Countdown } from '../parts/values.tsx';
import { showsAll } from '../state/session.ts';
import { texts } from '../texts.ts';

const REFRESH_MS = 15_000;
const ROWS_MAX = 100;
/** The API gives statistics of as many receivers, the slowest ones. */
const STATISTICS_MAX = 100;
/** Slower than this at the 95th percentile is worth a look. */
const SLOW_MS = 5_000;
const COLUMNS = 10;

type Row = { receiver: Receiver; statistics: ReceiverStatistics | undefined };
type Order = 'trouble' | 'slowest' | 'origin' | 'waiting';

export function Receivers() {
  const { query, hrefWith } = usePageQuery();
  const period = periodOf(query);
  const show = query.show === 'failing' ? 'failing' : 'all';
  const listed = {
    query: {
      limit: String(ROWS_MAX),
      cursor: query.cursor,
      failing: show === 'failing' ? 'true' : undefined,
    },
  };
  const receivers = useResource(
    `receivers ${show} ${query.cursor ?? ''}`,
    (signal) => callPage('GET /api/notifications/receivers', { ...listed, signal }),
    { everyMs: REFRESH_MS },
  );
  const options = { query: { period } };
  const statistics = useResource(
    `receiver statistics ${period}`,
    (signal) => call('GET /api/notifications/statistics/receivers', { ...options, signal }),
    { everyMs: REFRESH_MS },
  );
  const failing = useFailing().state.value.data?.length ?? 0;
  const failingText = `${failing}${failing === FAILING_MAX ? '+' : ''}`;
  const page = receivers.state.value.data;
  const isPart = query.cursor !== undefined || page?.next !== undefined;
  return (
    <>
      <PageHead
        title={texts.receivers.title}
        note={texts.receivers.note(page?.data.length ?? 0, isPart, failingText)}
      >
        <Choice
          label={texts.receivers.show}
          value={show}
          hrefOf={(value) => hrefWith({ show: value === 'all' ? undefined : value, cursor: undefined })}
          options={[
            { value: 'all', text: texts.receivers.all },
            { value: 'failing', text: texts.receivers.failing, count: failingText },
          ]}
        />
        <PeriodChoice />
        <CopyCurl operation="GET /api/notifications/receivers" options={listed} />
      </PageHead>
      <Loading loaded={receivers.state.value} reload={receivers.reload}>
        {({ data, next }) => {
          const rows = data.map(
            (receiver): Row => ({
              receiver,
              statistics: statisticsOf(receiver, statistics.state.value.data),
            }),
          );
          return (
            <>
              {rows.length === 0 ? (
                <Empty text={show === 'all' ? texts.receivers.none : texts.receivers.noneFailing} />
              ) : (
                <ReceiverTable rows={rows} period={period} openOrigin={query.origin} />
              )}
              <PageLinks next={next} />
            </>
          );
        }}
      </Loading>
      <p class="below">{texts.receivers.limitNote}</p>
      {statistics.state.value.data?.length === STATISTICS_MAX && (
        <p class="below">{texts.receivers.slowestOnly(STATISTICS_MAX)}</p>
      )}
    </>
  );
}

function statisticsOf(
  receiver: Receiver,
  all: readonly ReceiverStatistics[] | undefined,
): ReceiverStatistics | undefined {
  return all?.find((one) => one.origin === receiver.origin && one.watcher_id === receiver.watcher_id);
}

function ReceiverTable({
  rows,
  period,
  openOrigin,
}: {
  rows: readonly Row[];
  period: '24h' | '30d';
  openOrigin: string | undefined;
}) {
  const [order, setOrder] = useState<Order>('trouble');
  const { hrefWith } = usePageQuery();
  const sorted = useSorted(rows, order, openOrigin !== undefined);
  if (isSmall.value) return <ReceiverLines rows={sorted} openOrigin={openOrigin} />;
  const sort = (name: Order, text: string) => (
    <button
      type="button"
      class="sort"
      aria-pressed={order === name}
      onClick={() => setOrder(order === name ? 'trouble' : name)}
    >
      {text}
      {order === name && <Icon name="descending" />}
    </button>
  );
  return (
    <Table caption={texts.receivers.caption}>
      <thead>
        <tr>
          <th>{sort('origin', texts.receivers.receiver)}</th>
          <th>{texts.receivers.state}</th>
          <th class="right">{texts.receivers.delivered(texts.periods[period])}</th>
          <th class="right">{texts.receivers.success}</th>
          <th class="right third-rank">p50</th>
          <th class="right">{sort('slowest', 'p95')}</th>
          <th class="right third-rank">p99</th>
          <th class="right second-rank">{texts.receivers.underWay}</th>
          <th class="right">{sort('waiting', texts.receivers.waiting)}</th>
          <th class="right">{texts.receivers.oldest}</th>
          <th class="right">{texts.receivers.next}</th>
        </tr>
      </thead>
      <tbody>
        {sorted.map((row) => {
          const key = `${row.receiver.watcher_id ?? ''} ${row.receiver.origin}`;
          const isOpen = row.receiver.origin === openOrigin;
          const href = hrefWith({ origin: isOpen ? undefined : row.receiver.origin });
          return (
            <>
              <ReceiverRow key={key} row={row} href={href} isOpen={isOpen} />
              {isOpen && (
                <tr class="is-note" key={`${key} note`}>
                  <td colSpan={COLUMNS + 1}>
                    <Explanation receiver={row.receiver} />
                  </td>
                </tr>
              )}
            </>
          );
        })}
      </tbody>
    </Table>
  );
}

/** While a row is open, the rows keep their places until another order is chosen. */
function useSorted(rows: readonly Row[], order: Order, isKept: boolean): Row[] {
  const former = useRef<{ order: Order; places: ReadonlyMap<string, number> }>({ order, places: new Map() });
  const keyOf = ({ receiver }: Row) => `${receiver.watcher_id ?? ''} ${receiver.origin}`;
  const sorted = [...rows].sort(orders[order]);
  const placeOf = (row: Row) => former.current.places.get(keyOf(row)) ?? rows.length;
  if (isKept && former.current.order === order) sorted.sort((one, other) => placeOf(one) - placeOf(other));
  former.current = { order, places: new Map(sorted.map((row, place) => [keyOf(row), place])) };
  return sorted;
}

/** The same in two lines, for small screens. */
function ReceiverLines({ rows, openOrigin }: { rows: readonly Row[]; openOrigin: string | undefined }) {
  const { hrefWith } = usePageQuery();
  return (
    <ul class="rows">
      {rows.map(({ receiver, statistics }) => {
        const isOpen = receiver.origin === openOrigin;
        const { icon, tone } = receiverLook(receiver.state);
        return (
          <li key={`${receiver.watcher_id ?? ''} ${receiver.origin}`}>
            <a
              class="row-link"
              href={hrefWith({ origin: isOpen ? undefined : receiver.origin })}
              aria-expanded={isOpen}
            >
              <Icon name={icon} tone={tone} />
              <b>
                <span class="hidden">{texts.receiverStates[receiver.state]}: </span>
                {hostOf(receiver.origin)}
              </b>
              <span class="num">
                {statistics === undefined
                  ? texts.none
                  : texts.receivers.deliveredCount(formatCount(statistics.delivered))}
              </span>
              <span class="below-line">
                <span>
                  {isTroubled(receiver) ? shortReason(receiver) : texts.receiverStates[receiver.state]}
                </span>
                <span class={isTroubled(receiver) ? 'is-warn' : ''}>
                  {(receiver.waiting ?? 0) > 0
                    ? texts.receivers.waitingCount(formatCount(receiver.waiting ?? 0))
                    : statistics?.answer == null
                      ? ''
                      : `p95 ${formatDuration(statistics.answer.p95_ms)}`}
                </span>
              </span>
            </a>
            {isOpen && <Explanation receiver={receiver} />}
          </li>
        );
      })}
    </ul>
  );
}

function ReceiverRow({ row, href, isOpen }: { row: Row; href: string; isOpen: boolean }) {
  const { receiver, statistics } = row;
  const answer = statistics?.answer ?? undefined;
  const succeeded = statistics === undefined ? 0 : statistics.attempts - statistics.failed_attempts;
  const share =
    statistics === undefined || statistics.attempts === 0
      ? undefined
      : formatShare(succeeded, statistics.attempts);
  const isPoor = statistics !== undefined && statistics.attempts > 0 && succeeded / statistics.attempts < 0.9;
  const note = isTroubled(receiver) ? shortReason(receiver) : showsAll.value ? receiver.watcher : undefined;
  const duration = (ms: number | undefined) => (ms === undefined ? texts.none : formatDuration(ms));
  return (
    <LinkRow class={isOpen ? 'has-note' : ''}>
      <th scope="row">
        <a class="row-link medium" href={href} aria-expanded={isOpen} title={receiver.origin}>
          {hostOf(receiver.origin)}
        </a>
        {note !== undefined && <small>{note}</small>}
      </th>
      <td>
        <ReceiverState state={receiver.state} />
      </td>
      <td class="right">{statistics === undefined ? texts.none : formatCount(statistics.delivered)}</td>
      <td class={`right ${isPoor ? 'is-bad' : ''}`}>{share === undefined ? texts.none : `${share} %`}</td>
      <td class="right third-rank">{duration(answer?.p50_ms)}</td>
      <td class={`right ${answer !== undefined && answer.p95_ms > SLOW_MS ? 'is-warn' : ''}`}>
        {duration(answer?.p95_ms)}
      </td>
      <td class="right third-rank">{duration(answer?.p99_ms)}</td>
      <td class="right second-rank">
        {receiver.under_way ?? texts.none} / {receiver.concurrency ?? texts.none}
      </td>
      <td class={`right ${(receiver.waiting ?? 0) === 0 ? 'quiet' : ''}`}>
        {receiver.waiting === null ? texts.none : formatCount(receiver.waiting)}
        {receiver.waiting_is_complete === false ? '+' : ''}
      </td>
      <td class={`right ${isTroubled(receiver) ? 'is-warn' : 'quiet'}`}>
        <Age since={receiver.oldest_waiting_at} />
      </td>
      <td class="right">
        <Countdown to={receiver.next_attempt_at} />
      </td>
    </LinkRow>
  );
}

/** What the state does to this receiver, and to no other one. */
function Explanation({ receiver }: { receiver: Receiver }) {
  const { state, origin } = receiver;
  const icon =
    state === 'hung'
      ? 'hung'
      : state === 'failing'
        ? 'failing'
        : state === 'suspended'
          ? 'suspended'
          : 'delivered';
  return (
    <div class="notice">
      <Icon name={icon} tone={isTroubled(receiver) ? 'is-bad' : ''} />
      <div>
        <p>
          <b class="medium">
            {isTroubled(receiver) ? `${hostOf(origin)}: ${reasonOf(receiver)}` : hostOf(origin)}
          </b>{' '}
          {texts.receivers.effects[state]}
        </p>
        <p class="second">{texts.receivers.others}</p>
      </div>
      <div class="actions">
        <a class="button is-small" href={`/console/deliveries?origin=${encodeURIComponent(origin)}`}>
          {texts.receivers.showAll}
        </a>
        {isTroubled(receiver) && (
          <a
            class="button is-small"
            href={`/console/deliveries?origin=${encodeURIComponent(origin)}&status=failing`}
          >
            {texts.receivers.showFailing}
          </a>
        )}
      </div>
    </div>
  );
}

function shortReason({ last_status: status, last_outcome: outcome }: Receiver): string {
  if (status !== null) return texts.attention.answers(status);
  return outcome === 'timeout'
    ? texts.attention.noAnswer
    : (texts.outcomes[outcome ?? ''] ?? texts.attention.fails);
}

const rank: Record<Receiver['state'], number> = { failing: 0, hung: 1, suspended: 2, ok: 3 };
const orders: Record<Order, (one: Row, other: Row) => number> = {
  trouble: (one, other) =>
    rank[one.receiver.state] - rank[other.receiver.state] ||
    (other.receiver.waiting ?? 0) - (one.receiver.waiting ?? 0) ||
    (other.statistics?.delivered ?? 0) - (one.statistics?.delivered ?? 0),
  slowest: (one, other) => (other.statistics?.answer?.p95_ms ?? 0) - (one.statistics?.answer?.p95_ms ?? 0),
  waiting: (one, other) => (other.receiver.waiting ?? 0) - (one.receiver.waiting ?? 0),
  origin: (one, other) => one.receiver.origin.localeCompare(other.receiver.origin),
};
