/**
 * Receivers, one row for each URL's origin: how well and how fast each answers, what waits for it, and what its trouble does to it
 * and to no other one.
 */
import { useRef, useState } from 'preact/hooks';
import { callPage } from '../api/client.ts';
import { FAILING_MAX, useFailing } from '../api/failing.ts';
import { createCommand } from '../api/records.ts';
import { useResource } from '../api/resource.ts';
import type { Receiver } from '../api/types.ts';
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
import { Lines, LinkRow, Table } from '../parts/table.tsx';
import { Age, Command, Countdown } from '../parts/values.tsx';
import { now } from '../state/clock.ts';
import { showsAll } from '../state/session.ts';
import { texts } from '../texts.ts';

const REFRESH_MS = 15_000;
const ROWS_MAX = 100;
/** Slower than this at the 95th percentile is worth a look. */
const SLOW_MS = 5_000;
const COLUMNS = 10;
/** The first three retries of the default schedule take 14 minutes, and the fourth failure comes with the third of them. */
const RECENT_MS = 15 * 60_000;

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
      period,
    },
  };
  const receivers = useResource(
    `receivers ${show} ${period} ${query.cursor ?? ''}`,
    (signal) => callPage('GET /api/notifications/receivers', { ...listed, signal }),
    { everyMs: REFRESH_MS },
  );
  const failing = useFailing().state.value.data?.length;
  const failingText = failing === undefined ? undefined : `${failing}${failing === FAILING_MAX ? '+' : ''}`;
  const page = receivers.state.value.data;
  const isPart = query.cursor !== undefined || page?.next !== undefined;
  return (
    <>
      <PageHead
        title={texts.receivers.title}
        note={
          page === undefined || failingText === undefined ? (
            <>&nbsp;</>
          ) : (
            texts.receivers.note(page.data.length, isPart, failingText)
          )
        }
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
        {({ data, next }) => (
          <>
            {data.length > 0 ? (
              <ReceiverTable receivers={data} period={period} openOrigin={query.origin} />
            ) : show === 'failing' ? (
              <Empty text={texts.receivers.noneFailing} />
            ) : (
              <Empty text={texts.receivers.none}>
                <Command text={createCommand()} />
              </Empty>
            )}
            <PageLinks next={next} />
          </>
        )}
      </Loading>
      <p class="below">{texts.receivers.limitNote}</p>
    </>
  );
}

function ReceiverTable({
  receivers,
  period,
  openOrigin,
}: {
  receivers: readonly Receiver[];
  period: '24h' | '30d';
  openOrigin: string | undefined;
}) {
  const [order, setOrder] = useState<Order>('trouble');
  const { hrefWith } = usePageQuery();
  const sorted = useSorted(receivers, order, openOrigin !== undefined);
  if (isSmall.value) return <ReceiverLines receivers={sorted} openOrigin={openOrigin} />;
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
        {sorted.map((receiver) => {
          const key = keyOf(receiver);
          const isOpen = receiver.origin === openOrigin;
          const href = hrefWith({ origin: isOpen ? undefined : receiver.origin });
          return (
            <>
              <ReceiverRow key={key} receiver={receiver} href={href} isOpen={isOpen} />
              {isOpen && (
                <tr class="is-note" key={`${key} note`}>
                  <td colSpan={COLUMNS + 1}>
                    <Explanation receiver={receiver} />
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

const keyOf = ({ watcher_id: watcherId, origin }: Receiver) => `${watcherId ?? ''} ${origin}`;

/** While a row is open, the rows keep their places until another order is chosen. */
function useSorted(receivers: readonly Receiver[], order: Order, isKept: boolean): Receiver[] {
  const former = useRef<{ order: Order; places: ReadonlyMap<string, number> }>({ order, places: new Map() });
  const sorted = [...receivers].sort(orders[order]);
  const placeOf = (receiver: Receiver) => former.current.places.get(keyOf(receiver)) ?? receivers.length;
  if (isKept && former.current.order === order) sorted.sort((one, other) => placeOf(one) - placeOf(other));
  former.current = { order, places: new Map(sorted.map((receiver, place) => [keyOf(receiver), place])) };
  return sorted;
}

/** The same in two lines, for small screens. */
function ReceiverLines({
  receivers,
  openOrigin,
}: {
  receivers: readonly Receiver[];
  openOrigin: string | undefined;
}) {
  const { hrefWith } = usePageQuery();
  return (
    <Lines>
      {receivers.map((receiver) => {
        const { statistics } = receiver;
        const isOpen = receiver.origin === openOrigin;
        const { icon, tone } = receiverLook(receiver.state);
        return (
          <li key={keyOf(receiver)}>
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
                {statistics == null
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
    </Lines>
  );
}

function ReceiverRow({ receiver, href, isOpen }: { receiver: Receiver; href: string; isOpen: boolean }) {
  const { attempts = 0, failed_attempts: failed = 0, delivered, answer } = receiver.statistics ?? {};
  const succeeded = attempts - failed;
  const isPoor = attempts > 0 && succeeded / attempts < 0.9;
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
      <td class="right">{delivered === undefined ? texts.none : formatCount(delivered)}</td>
      <td class={`right ${isPoor ? 'is-bad' : ''}`}>
        {attempts === 0 ? texts.none : `${formatShare(succeeded, attempts)} %`}
      </td>
      <td class="right third-rank">{duration(answer?.p50_ms)}</td>
      <td class={`right ${answer != null && answer.p95_ms > SLOW_MS ? 'is-warn' : ''}`}>
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
            href={`/console/deliveries?origin=${encodeURIComponent(origin)}&status=${statusOf(receiver)}`}
          >
            {texts.receivers.showFailing}
          </a>
        )}
      </div>
    </div>
  );
}

/** Of most deliveries that fail there: as long as it has failed for less than three retries, they are retrying. */
function statusOf({ failing_since: since }: Receiver): 'retrying' | 'failing' {
  const isRecent = since !== null && now.value - Date.parse(since) < RECENT_MS;
  return isRecent ? 'retrying' : 'failing';
}

function shortReason({ last_status: status, last_outcome: outcome }: Receiver): string {
  if (status !== null) return texts.attention.answers(status);
  return outcome === 'timeout'
    ? texts.attention.noAnswer
    : (texts.outcomes[outcome ?? ''] ?? texts.attention.fails);
}

const rank: Record<Receiver['state'], number> = { failing: 0, hung: 1, suspended: 2, ok: 3 };
const orders: Record<Order, (one: Receiver, other: Receiver) => number> = {
  trouble: (one, other) =>
    rank[one.state] - rank[other.state] ||
    other.waiting - one.waiting ||
    (other.statistics?.delivered ?? 0) - (one.statistics?.delivered ?? 0),
  slowest: (one, other) => (other.statistics?.answer?.p95_ms ?? 0) - (one.statistics?.answer?.p95_ms ?? 0),
  waiting: (one, other) => other.waiting - one.waiting,
  origin: (one, other) => one.origin.localeCompare(other.origin),
};
