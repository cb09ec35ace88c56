/**
 * The delivery log: filters that are in the address, rows that live, and the delivery that is open beside them.
 */
import { useSignal } from '@preact/signals';
import { useCallback, useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useLocation, useRoute } from 'preact-iso';
import { call } from '../api/client.ts';
import { type DeliveryFilter, filterFrom, hasFilter, queryOf } from '../api/filter.ts';
import { type LiveList, useLiveList } from '../api/live-list.ts';
import { createCommand } from '../api/records.ts';
import { useResource } from '../api/resource.ts';
import { formatCount } from '../format/number.ts';
import { DeliveryHeads, DeliveryLines, DeliveryRow, type RowDelivery } from '../parts/delivery-row.tsx';
import { LiveLine } from '../parts/live-line.tsx';
import { CopyCurl, Empty, Failed, Ghosts, PageHead, usePageQuery } from '../parts/page.tsx';
import { focusRow, Lines, Table } from '../parts/table.tsx';
import { Command } from '../parts/values.tsx';
import { isSmall } from '../state/screen.ts';
import { useShortcut } from '../state/shortcuts.ts';
import { texts } from '../texts.ts';
import { DeliveryPanel } from './delivery.tsx';
import { FilterChips } from './filters.tsx';
import { RedeliverDialog } from './redeliver-dialog.tsx';

type Picked = ReadonlyMap<number, string | null>;

const COUNT_MS = 15_000;

export function Deliveries() {
  const { params } = useRoute();
  const { route } = useLocation();
  const { query, hrefWith } = usePageQuery();
  const openId = params.id === undefined || params.id === '' ? undefined : params.id;
  const filter = filterFrom(query);
  const { cursor } = query;
  const isLive = useSignal(true);
  /** With the receiver of each. They may be on several pages. */
  const picked = useSignal<Picked>(new Map());
  /** What the dialog is about, whatever becomes of the page meanwhile. */
  const [redelivers, setRedelivers] = useState<{ picked: Picked; filter: DeliveryFilter } | undefined>(
    undefined,
  );
  /** How many redeliveries this page has made: each changes how many deliveries match. */
  const [redelivered, setRedelivered] = useState(0);
  const ask = () => setRedelivers({ picked: picked.value, filter });
  const list = useRef<HTMLDivElement>(null);
  // Rows stand still while somebody is about to use one of them.
  const isStill = useCallback(
    () =>
      openIdRef.current !== undefined ||
      scrollY > 80 ||
      picked.value.size > 0 ||
      list.current?.querySelector('tbody:hover, ul:hover, tbody :focus, ul :focus') != null ||
      getSelection()?.isCollapsed === false,
    [picked],
  );
  const openIdRef = useRef(openId);
  openIdRef.current = openId;
  const live = useLiveList({ filter, cursor, isLive: isLive.value, isStill });
  const filterKey = JSON.stringify(filter);
  useEffect(() => {
    setRedelivers(undefined);
    picked.value = new Map();
  }, [filterKey]);

  const search = (id: number | undefined) => {
    const [, text = ''] = hrefWith({}).split('?');
    return `/console/deliveries${id === undefined ? '' : `/${id}`}${text === '' ? '' : `?${text}`}`;
  };
  const close = useCallback(() => {
    const path = `/console/deliveries/${openIdRef.current ?? ''}`;
    route(search(undefined));
    setTimeout(() => focusRow(list.current, path));
  }, [route, search]);
  useShortcut('Escape', openId === undefined ? undefined : close);
  useShortcut('l', () => {
    isLive.value = !isLive.value;
  });
  useShortcut('.', () => void showFresh(live));
  useShortcut('Shift+R', openId === undefined ? ask : undefined);
  useShortcut('x', () => {
    const row = document.activeElement?.closest('tr')?.querySelector<HTMLElement>('input[type=checkbox]');
    row?.click();
  });

  return (
    <div class={openId === undefined ? '' : 'split has-detail'}>
      <div class="list" ref={list}>
        <PageHead
          title={texts.deliveries.title}
          note={
            <Matches filter={filter} live={live} isFirst={cursor === undefined} redelivered={redelivered} />
          }
        >
          <button
            type="button"
            class="switch"
            role="switch"
            aria-checked={isLive.value}
            onClick={() => {
              isLive.value = !isLive.value;
            }}
          >
            <i aria-hidden="true" />
            {texts.live.name}
          </button>
          {openId === undefined && (
            <CopyCurl
              operation="GET /api/notifications/log"
              options={{ query: { ...queryOf(filter), cursor } }}
            />
          )}
          <button type="button" class="button" onClick={ask}>
            {picked.value.size === 0
              ? texts.deliveries.redeliver
              : texts.deliveries.redeliverSome(picked.value.size)}
          </button>
        </PageHead>
        <FilterChips filter={filter} />
        <LiveLine
          isOn={isLive.value && cursor === undefined}
          isPast={cursor !== undefined}
          fresh={live.fresh.value}
          hasMissed={live.hasMissed.value}
          note={openId === undefined ? undefined : texts.live.still}
          onShow={() => void showFresh(live)}
        />
        <Rows live={live} picked={picked} openId={openId} hrefOf={search} />
        <Pages live={live} cursor={cursor} />
      </div>
      {openId !== undefined && (
        <DeliveryPanel key={openId} id={openId} onClose={close} onChanged={() => void live.renew()} />
      )}
      {redelivers !== undefined && (
        <RedeliverDialog
          {...redelivers}
          onClose={(hasStarted) => {
            setRedelivers(undefined);
            if (!hasStarted) return;
            picked.value = new Map();
            setRedelivered((before) => before + 1);
            void live.reload();
          }}
        />
      )}
    </div>
  );
}

async function showFresh(live: LiveList): Promise<void> {
  live.hasMissed.value = false;
  await live.reload();
  scrollTo({ top: 0 });
}

/**
 * How many deliveries match, counted up to 10,000. Rows that have arrived since the last count are never more than it says. A list
 * of one page is counted as it is.
 */
function Matches({
  filter,
  live,
  isFirst,
  redelivered,
}: {
  filter: ReturnType<typeof filterFrom>;
  live: LiveList;
  isFirst: boolean;
  redelivered: number;
}) {
  const key = JSON.stringify(filter);
  const { state, reload } = useResource(
    `count ${key}`,
    (signal) => call('GET /api/notifications/log/count', { query: queryOf(filter), signal }),
    { everyMs: COUNT_MS },
  );
  useEffect(() => {
    if (redelivered > 0) void reload();
  }, [redelivered]);
  const { data } = state.value;
  const { value: rows } = live.rows;
  const shown = (rows?.length ?? 0) + live.fresh.value;
  const isWhole = isFirst && rows !== undefined && live.next.value === undefined;
  if (data === undefined && !isWhole) return <>&nbsp;</>;
  const isExact = isWhole || data?.is_complete === true;
  const count = `${formatCount(isWhole ? shown : Math.max(data?.count ?? 0, shown))}${isExact ? '' : '+'}`;
  return <>{hasFilter(filter) ? texts.deliveries.match(count) : texts.deliveries.total(count)}</>;
}

function Rows({
  live,
  picked,
  openId,
  hrefOf,
}: {
  live: LiveList;
  picked: { value: Picked };
  openId: string | undefined;
  hrefOf(id: number): string;
}) {
  const rows = live.rows.value;
  const error = live.error.value;
  const { query } = usePageQuery();
  const toggle = useCallback(
    ({ id, origin }: RowDelivery) => {
      const next = new Map(picked.value);
      if (!next.delete(id)) next.set(id, origin);
      picked.value = next;
    },
    [picked],
  );
  if (rows === undefined && error !== undefined)
    return <Failed error={error} onRetry={() => void live.reload()} />;
  // All rows that were shown may have left, and the next ones are on their way.
  if (rows === undefined || (rows.length === 0 && live.next.value !== undefined && !live.isShort.value))
    return (
      <div class="is-late">
        <Ghosts />
      </div>
    );
  if (rows.length === 0)
    return hasFilter(filterFrom(query)) || query.cursor !== undefined ? (
      <Empty text={texts.deliveries.noMatch} />
    ) : (
      <Empty text={texts.deliveries.none}>
        <Command text={createCommand()} />
      </Empty>
    );
  if (isSmall.value)
    return (
      <Lines>
        {rows.map((row) => (
          <DeliveryLines key={row.id} delivery={row} href={hrefOf(row.id)} />
        ))}
      </Lines>
    );
  const areAll = rows.every(({ id }) => picked.value.has(id));
  return (
    <Table caption={texts.deliveries.caption}>
      <thead>
        <tr>
          <th class="pick">
            <input
              type="checkbox"
              checked={areAll}
              aria-label={texts.deliveries.pickAll}
              onChange={() => {
                const next = new Map(picked.value);
                for (const { id, origin } of rows) {
                  if (areAll) next.delete(id);
                  else next.set(id, origin);
                }
                picked.value = next;
              }}
            />
          </th>
          <DeliveryHeads hasReceiver={openId === undefined} />
          <th class="right">{texts.deliveries.lastAnswer}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map((row, place) => (
          // A busy list has other rows four times a second. To fill its elements again costs less than to replace them, and rows
          // stay where they are as long as the pointer or the focus is on one.
          <ListRow
            key={place}
            delivery={row}
            href={hrefOf(row.id)}
            isCurrent={String(row.id) === openId}
            hasReceiver={openId === undefined}
            isPicked={picked.value.has(row.id)}
            onPick={toggle}
          />
        ))}
      </tbody>
    </Table>
  );
}

type ListRowProps = {
  delivery: RowDelivery;
  href: string;
  isCurrent: boolean;
  hasReceiver: boolean;
  isPicked: boolean;
  onPick(row: RowDelivery): void;
};

/** A row that is compared with its former self only if one of its values has changed, because a busy list changes often. */
function ListRow({ delivery, href, isCurrent, hasReceiver, isPicked, onPick }: ListRowProps) {
  return useMemo(
    () => (
      <DeliveryRow
        delivery={delivery}
        href={href}
        isCurrent={isCurrent}
        hasReceiver={hasReceiver}
        pick={
          <input
            type="checkbox"
            checked={isPicked}
            aria-label={texts.deliveries.pick(delivery.id)}
            onChange={() => onPick(delivery)}
          />
        }
      />
    ),
    [delivery, href, isCurrent, hasReceiver, isPicked, onPick],
  );
}

function Pages({ live, cursor }: { live: LiveList; cursor: string | undefined }) {
  const { hrefWith } = usePageQuery();
  const { value: next } = live.next;
  return (
    <p class="below">
      {cursor !== undefined && (
        <a class="link" href={hrefWith({ cursor: undefined })}>
          {texts.newest}
        </a>
      )}
      {next !== undefined && (
        <>
          {live.isShort.value && <span>{texts.deliveries.lookedThrough}</span>}
          <a class="link" href={hrefWith({ cursor: next })}>
            {texts.older}
          </a>
        </>
      )}
    </p>
  );
}
