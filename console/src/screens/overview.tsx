/**
 * The overview: is it working, and if not, where and since when.
 */

import { chain, lastHead, status } from '../api/chain.ts';
import { call } from '../api/client.ts';
import { unsettledOf, useFailing } from '../api/failing.ts';
import { createCommand } from '../api/records.ts';
import { type Loaded, useResource } from '../api/resource.ts';
import { useTail } from '../api/tail.ts';
import type { Receiver, Statistics } from '../api/types.ts';
import { groupDigits } from '../format/amount.ts';
import { formatAge, formatCount, formatDuration, formatShare, splitUnit } from '../format/number.ts';
import { areExact, formatQueued } from '../format/queue.ts';
import { formatInstant, formatLong } from '../format/time.ts';
import { Attention, isTroubled } from '../parts/attention.tsx';
import { DeliveryChart } from '../parts/delivery-chart.tsx';
import { Figure, Figures } from '../parts/figures.tsx';
import { CopyCurl, Ghosts, Loading, PageHead, PeriodChoice, periodOf, usePageQuery } from '../parts/page.tsx';
import { TailTable } from '../parts/tail-table.tsx';
import { now } from '../state/clock.ts';
import { onDemand } from '../state/lazy.ts';
import { zone } from '../state/preferences.ts';
import { session, showsAll } from '../state/session.ts';
import { texts } from '../texts.ts';

const FirstRun = onDemand(() => import('./first-run.tsx').then((module) => module.FirstRun));

const STATISTICS_MS = 15_000;
const RECEIVERS_MAX = 100;
const TAIL_ROWS = 10;
/** An older head is worth a look. */
const HEAD_BLOCKS_MAX = 3;

export function Overview() {
  const { query } = usePageQuery();
  const period = periodOf(query);
  const options = { query: { period } };
  const statistics = useResource(
    `statistics ${period}`,
    (signal) => call('GET /api/notifications/statistics', { ...options, signal }),
    { everyMs: STATISTICS_MS },
  );
  const receivers = useResource(
    'receivers',
    (signal) => call('GET /api/notifications/receivers', { query: { limit: String(RECEIVERS_MAX) }, signal }),
    { everyMs: STATISTICS_MS },
  );
  const failing = useFailing();
  const records = useResource(
    'first records',
    (signal) => call('GET /api/notifications/watched-addresses', { query: { limit: '1' }, signal }),
    { when: !showsAll.value },
  );
  const { data: known } = records.state.value;
  const loaded = statistics.state.value;
  const isNew = known?.length === 0 && loaded.data?.totals.attempts === 0;
  if (isNew) return <FirstRun onCreated={() => void records.reload()} />;
  return (
    <>
      <PageHead
        title={texts.overview.title}
        note={`${formatLong(now.value, zone.value)} ${texts.zones[zone.value]} · ${whose()}`}
      >
        <PeriodChoice />
        <CopyCurl operation="GET /api/notifications/statistics" options={options} />
      </PageHead>
      <Summary
        statistics={loaded.data}
        receivers={receivers.state.value}
        failing={failing.state.value.data}
        isOld={loaded.error !== undefined}
      />
      <Loading loaded={loaded} reload={statistics.reload} ghost={<Ghosts rows={5} />}>
        {(data) => <DeliveryChart statistics={data} />}
      </Loading>
      <div class="columns is-overview">
        <Tail />
        <Attention failing={failing} receivers={receivers.state.value.data} receiversMax={RECEIVERS_MAX} />
      </div>
    </>
  );
}

function whose(): string {
  const { value } = session;
  if (value.kind === 'visitor') return '';
  return value.watcher === undefined
    ? texts.overview.allWatchers
    : texts.overview.receiversOf(value.watcher.name);
}

function Summary({
  statistics,
  receivers,
  failing,
  isOld,
}: {
  statistics: Statistics | undefined;
  receivers: Loaded<Receiver[]>;
  failing: Receiver[] | undefined;
  isOld: boolean;
}) {
  const latency = statistics?.latency ?? undefined;
  const [p95, unit] = latency === undefined ? [undefined, ''] : splitUnit(formatDuration(latency.p95_ms));
  return (
    <Figures>
      <Figure
        label={texts.overview.deliveredIn(statistics?.period ?? '24h')}
        value={statistics === undefined ? undefined : formatCount(statistics.totals.delivered)}
        note={statistics === undefined ? '' : comparedTo(statistics)}
        isOld={isOld}
      />
      <FirstAttempts statistics={statistics} failing={failing} isOld={isOld} />
      <Figure
        label={texts.overview.latency}
        value={p95}
        unit={unit}
        note={
          statistics === undefined
            ? ''
            : latency === undefined
              ? texts.overview.noLatency
              : texts.overview.percentiles(formatDuration(latency.p50_ms), formatDuration(latency.p99_ms))
        }
        isOld={isOld}
      />
      <Waiting receivers={receivers.data} failing={failing} isOld={receivers.error !== undefined} />
      <HeadFigure />
    </Figures>
  );
}

function comparedTo({ totals, previous, period }: Statistics): string {
  if (previous === null) return texts.overview.unknownPrevious;
  if (previous.delivered === 0) return texts.overview.noPrevious[period];
  const isMore = totals.delivered >= previous.delivered;
  const difference = Math.abs(totals.delivered - previous.delivered);
  const percent = (Math.round((difference / previous.delivered) * 1000) / 10).toFixed(1);
  return texts.overview.compared(percent, isMore, period);
}

/**
 * The share of messages that were delivered with their first attempt. Retries never end, so those that were tried and not delivered
 * count too.
 */
function FirstAttempts({
  statistics,
  failing,
  isOld,
}: {
  statistics: Statistics | undefined;
  failing: Receiver[] | undefined;
  isOld: boolean;
}) {
  if (statistics === undefined || failing === undefined)
    return <Figure label={texts.overview.onFirst} value={undefined} />;
  const { first_attempt: first, delivered } = statistics.totals;
  const { count: unsettled, isPart } = unsettledOf(failing);
  const tried = delivered + unsettled;
  return (
    <Figure
      label={texts.overview.onFirst}
      value={tried === 0 ? undefined : `${isPart ? '≤ ' : ''}${formatShare(first, tried)}`}
      unit="%"
      note={
        unsettled === 0
          ? failedNote(statistics)
          : texts.overview.stillRetried(`${formatCount(unsettled)}${isPart ? '+' : ''}`)
      }
      isOld={isOld}
    />
  );
}

function failedNote({ totals }: Statistics): string {
  if (totals.attempts === 0) return texts.overview.noAttempts;
  if (totals.failed_attempts === 0) return texts.overview.noneFailed;
  return texts.overview.failedShare(formatShare(totals.failed_attempts, totals.attempts));
}

/** The notifications that wait for all receivers. Where only some of them are loaded, the status has the count of all watchers. */
function Waiting({
  receivers,
  failing = [],
  isOld,
}: {
  receivers: Receiver[] | undefined;
  failing: Receiver[] | undefined;
  isOld: boolean;
}) {
  if (receivers === undefined) return <Figure label={texts.overview.waiting} value={undefined} />;
  const { data, error } = status.state.value;
  const queue = showsAll.value ? (data?.queue ?? undefined) : undefined;
  const areAll = receivers.length < RECEIVERS_MAX;
  const keyOf = ({ watcher_id: id, origin }: Receiver) => `${id} ${origin}`;
  const known = [...new Map([...receivers, ...failing].map((one) => [keyOf(one), one])).values()];
  const count =
    queue === undefined
      ? known.reduce((sum, { waiting }) => sum + (waiting ?? 0), 0)
      : queue.waiting + queue.deferred;
  const isExact =
    queue === undefined
      ? areAll && known.every((one) => one.waiting_is_complete !== false)
      : areExact(queue, [queue.waiting, queue.deferred]);
  const isBad = count > 0 && known.some(isTroubled);
  return (
    <Figure
      label={texts.overview.waiting}
      value={`${formatCount(count)}${isExact ? '' : '+'}`}
      note={
        isExact && count === 0
          ? texts.overview.nothingWaits
          : areAll
            ? oldestNote(known)
            : queue === undefined
              ? texts.overview.notAllCounted
              : texts.overview.due(formatQueued(queue, [queue.due]))
      }
      noteIcon={isBad ? 'alert' : undefined}
      tone={isBad ? 'is-warn' : ''}
      isOld={isOld || (queue !== undefined && error !== undefined)}
    />
  );
}

function oldestNote(receivers: readonly Receiver[]): string {
  const times = receivers.flatMap(({ oldest_waiting_at: at }) => (at === null ? [] : Date.parse(at)));
  return times.length === 0 ? '' : texts.overview.oldest(formatAge(now.value - Math.min(...times)));
}

function HeadFigure() {
  const head = lastHead.value;
  if (head === undefined) return <Figure label={texts.overview.head} value={undefined} note={<NoHead />} />;
  const ageMs = Math.max(0, now.value - head.minedAt);
  const [value, unit] = splitUnit(formatAge(ageMs));
  const blockMs = chain.state.value.data?.block_time_ms;
  const isLate = blockMs !== null && blockMs !== undefined && ageMs > HEAD_BLOCKS_MAX * blockMs + 2_000;
  return (
    <Figure
      label={texts.overview.head}
      value={value}
      unit={unit === '' ? '' : `${unit} ${texts.ago}`}
      note={<span class="mono">#{groupDigits(String(head.number))}</span>}
      noteIcon={isLate ? 'alert' : undefined}
      tone={isLate ? 'is-warn' : ''}
    />
  );
}

/** Why there is no head: the database is away, or no block is stored. */
function NoHead() {
  const { data } = status.state.value;
  if (data === undefined) return <>&nbsp;</>;
  if (data.problem === null) return <>{texts.noBlock}</>;
  const since = formatInstant(Date.parse(data.problem.since), { ms: now.value, zone: zone.value });
  return <>{texts.problemSince(since)}</>;
}

function Tail() {
  const rows = useTail(TAIL_ROWS);
  const hrefOf = (id: number) => `/console/deliveries/${id}`;
  const { value } = rows;
  return (
    <section aria-labelledby="tail">
      <div class="section-head">
        <h2 id="tail">{texts.overview.tail}</h2>
        <span>{texts.overview.tailNote}</span>
        <div class="actions">
          <a class="link" href="/console/deliveries">
            {texts.overview.allDeliveries}
          </a>
        </div>
      </div>
      <TailTable
        rows={value}
        hrefOf={hrefOf}
        caption={texts.overview.tailCaption}
        empty={texts.overview.noTail}
        command={createCommand}
        ghosts={TAIL_ROWS}
        hasReceiver
      />
    </section>
  );
}
