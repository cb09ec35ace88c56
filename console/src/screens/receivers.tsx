/**
 * Receivers, one row for each URL's origin: how well and how fast each answers, what waits for it, and what its trouble does to it
 * and to no other one.
 */
import { Fragment } from 'preact';
import { useRef, useState } from 'preact/hooks';
import { call, callPage } from '../api/client.ts';
import { FAILING_MAX, useFailing } from '../api/failing.ts';
import { createCommand } from '../api/records.ts';
import { useResource } from '../api/resource.ts';
import type { Data, Receiver } from '../api/types.ts';
import { formatCount, formatDuration, formatShare } from '../format/number.ts';
import { hostOf } from '../format/short.ts';
import { isTroubled, reasonOf } from '../parts/attention.tsx';
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
import { conditionOf, receiverLook, State } from '../parts/state.tsx';
import { Lines, LinkRow, Table } from '../parts/table.tsx';
import { Age, Command, Countdown } from '../parts/values.tsx';
import { isSmall } from '../state/screen.ts';
import { narrowTo, showsAll } from '../state/session.ts';
import { texts } from '../texts.ts';

const REFRESH_MS = 15_000;
const ROWS_MAX = 100;
/** Slower than this at the 95th percentile is worth a look. */
const SLOW_MS = 5_000;
const COLUMNS = 10;
/** Both statuses of deliveries whose attempts have failed. The filter of the log takes one at a time. */
const FAILING = ['retrying', 'failing'] as const;

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
              <ReceiverTable receivers={data} period={period} />
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

function ReceiverTable({ receivers, period }: { receivers: readonly Receiver[]; period: '24h' | '30d' }) {
  const [order, setOrder] = useState<Order>('trouble');
  const { query } = usePageQuery();
  const linkTo = useLinks();
  const sorted = useSorted(receivers, order, query.origin !== undefined);
  if (isSmall.value) return <ReceiverLines receivers={sorted} />;
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
          const { isOpen, href } = linkTo(receiver);
          return (
            <Fragment key={keyOf(receiver)}>
              <ReceiverRow receiver={receiver} href={href} isOpen={isOpen} />
              {isOpen && (
                <tr class="is-note">
                  <td colSpan={COLUMNS + 1}>
                    <Explanation receiver={receiver} />
                  </td>
                </tr>
              )}
            </Fragment>
          );
        })}
      </tbody>
    </Table>
  );
}

const keyOf = ({ watcher_id: watcherId, origin }: Receiver) => `${watcherId ?? ''} ${origin}`;

/**
 * Whether a receiver is open, and where a click on its row leads. A link from elsewhere may name no watcher, and then opens the
 * receivers of all watchers with this origin.
 */
function useLinks(): (receiver: Receiver) => { isOpen: boolean; href: string } {
  const { query, hrefWith } = usePageQuery();
  return ({ origin, watcher_id: id }) => {
    const watcher = id === undefined ? undefined : String(id);
    const isOfWatcher = watcher === undefined || query.watcher === undefined || query.watcher === watcher;
    const isOpen = query.origin === origin && isOfWatcher;
    return {
      isOpen,
      href: hrefWith(isOpen ? { origin: undefined, watcher: undefined } : { origin, watcher }),
    };
  };
}

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
function ReceiverLines({ receivers }: { receivers: readonly Receiver[] }) {
  const linkTo = useLinks();
  return (
    <Lines>
      {receivers.map((receiver) => {
        const { statistics } = receiver;
        const { isOpen, href } = linkTo(receiver);
        const { icon, tone, word } = receiverLook(receiver);
        return (
          <li key={keyOf(receiver)}>
            <a class="row-link" href={href} aria-expanded={isOpen}>
              <Icon name={icon} tone={tone} />
              <b title={receiver.origin}>
                <span class="hidden">{word}: </span>
                {hostOf(receiver.origin)}
              </b>
              <span class="num">
                {statistics == null
                  ? texts.none
                  : texts.receivers.deliveredCount(formatCount(statistics.delivered))}
              </span>
              <span class="below-line wraps">
                <span>{noteOf(receiver, word)}</span>
                <span class={isTroubled(receiver) ? 'is-warn' : ''}>
                  {(receiver.waiting ?? 0) > 0
                    ? texts.receivers.waitingCount(waitingOf(receiver))
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

/** A count that stopped at its limit ends with a plus. */
const waitingOf = ({ waiting, waiting_is_complete: isComplete }: Receiver): string =>
  `${formatCount(waiting ?? 0)}${isComplete === false ? '+' : ''}`;

function ReceiverRow({ receiver, href, isOpen }: { receiver: Receiver; href: string; isOpen: boolean }) {
  const { attempts = 0, failed_attempts: failed = 0, delivered, answer } = receiver.statistics ?? {};
  const succeeded = attempts - failed;
  const isPoor = attempts > 0 && succeeded / attempts < 0.9;
  const note = noteOf(receiver);
  const duration = (ms: number | undefined) => (ms === undefined ? texts.none : formatDuration(ms));
  return (
    <LinkRow class={isOpen ? 'has-note' : ''}>
      <th scope="row" class="long" title={receiver.origin}>
        <a class="row-link medium" href={href} aria-expanded={isOpen}>
          {hostOf(receiver.origin)}
        </a>
        {note !== '' && <small>{note}</small>}
      </th>
      <td>
        <State {...receiverLook(receiver)} />
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
        {receiver.waiting === null ? texts.none : waitingOf(receiver)}
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
  const { origin, watcher, watcher_id: id } = receiver;
  const counts = useResource(
    `failing of ${keyOf(receiver)}`,
    (signal) =>
      Promise.all(
        FAILING.map(async (status) => ({ status, ...(await countDeliveries(receiver, status, signal)) })),
      ),
    { everyMs: REFRESH_MS },
  );
  const deliveries = `/console/deliveries?origin=${encodeURIComponent(origin)}`;
  const choose = () => narrowTo(id, watcher);
  return (
    <div class="notice">
      <Icon name={receiverLook(receiver).icon} tone={isTroubled(receiver) ? 'is-bad' : ''} />
      <div>
        <p>
          <b class="medium">
            {hostOf(origin)}
            {watcher !== undefined && ` ${texts.attention.of(watcher)}`}
            {isTroubled(receiver) && `: ${reasonOf(receiver)}`}
          </b>{' '}
          {texts.receivers.effects[conditionOf(receiver)]}
        </p>
        {receiver.next_attempt_at !== null && (
          <p>
            {texts.receivers.next}: <Countdown to={receiver.next_attempt_at} />
          </p>
        )}
        {receiver.under_way !== null && (
          <p>
            {texts.receivers.underWay}: {receiver.under_way} / {receiver.concurrency ?? texts.none}
          </p>
        )}
        <p class="second">{texts.receivers.others}</p>
      </div>
      <div class="actions">
        <a class="button is-small" href={deliveries} onClick={choose}>
          {texts.receivers.showAll}
        </a>
        {counts.state.value.data
          ?.filter(({ count, is_complete: isComplete }) => count > 0 || !isComplete)
          .map(({ status, count, is_complete: isComplete }) => (
            <a key={status} class="button is-small" href={`${deliveries}&status=${status}`} onClick={choose}>
              {texts.receivers.showStatus[status](`${formatCount(count)}${isComplete ? '' : '+'}`)}
            </a>
          ))}
      </div>
    </div>
  );
}

/** Deliveries of the receiver with this status. */
function countDeliveries(
  { origin, watcher_id: id }: Receiver,
  status: (typeof FAILING)[number],
  signal: AbortSignal,
): Promise<Data<'GET /api/notifications/log/count'>> {
  const query = { origin, status };
  return id === undefined
    ? call('GET /api/notifications/log/count', { query, signal })
    : call('GET /api/admin/log/count', { query: { ...query, watcher: String(id) }, signal });
}

/** The watcher, to an operator who sees all of them, and what is wrong, or else `otherwise`. */
function noteOf(receiver: Receiver, otherwise?: string): string {
  const watcher = showsAll.value ? receiver.watcher : undefined;
  const state = isTroubled(receiver) ? shortReason(receiver) : otherwise;
  return [watcher, state].filter((text) => text !== undefined).join(' · ');
}

function shortReason({ last_status: status, last_outcome: outcome }: Receiver): string {
  if (status !== null) return texts.attention.answers(status);
  return outcome === 'timeout'
    ? texts.attention.noAnswer
    : (texts.outcomes[outcome ?? ''] ?? texts.attention.fails);
}

const rank: Record<ReturnType<typeof conditionOf>, number> = {
  ...{ failing: 0, hung: 1, suspended: 2, ok: 3, unused: 4 },
};
const orders: Record<Order, (one: Receiver, other: Receiver) => number> = {
  trouble: (one, other) =>
    rank[conditionOf(one)] - rank[conditionOf(other)] ||
    other.waiting - one.waiting ||
    (other.statistics?.delivered ?? 0) - (one.statistics?.delivered ?? 0),
  slowest: (one, other) => (other.statistics?.answer?.p95_ms ?? 0) - (one.statistics?.answer?.p95_ms ?? 0),
  waiting: (one, other) => other.waiting - one.waiting,
  origin: (one, other) => one.origin.localeCompare(other.origin),
};
