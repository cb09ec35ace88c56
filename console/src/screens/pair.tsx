/**
 * A swap pair: price, volume and value, and how both went by the hour.
 */
import { scaleLinear } from 'd3-scale';
import { line } from 'd3-shape';
import { useState } from 'preact/hooks';
import { useRoute } from 'preact-iso';
import { chain, status } from '../api/chain.ts';
import { callExact } from '../api/client.ts';
import { useResource } from '../api/resource.ts';
import { formatAmount, formatDecimal, formatMoney, formatPrice } from '../format/amount.ts';
import { sumOf } from '../format/decimal.ts';
import { formatCount, formatTick } from '../format/number.ts';
import { formatClock, formatDay } from '../format/time.ts';
import { AsTable, Chart, Swatch } from '../parts/chart.tsx';
import { Figure, Figures } from '../parts/figures.tsx';
import { Choice, CopyCurl, Empty, Loading, PageHead, usePageQuery } from '../parts/page.tsx';
import { Address, Age, Copy } from '../parts/values.tsx';
import { zone } from '../state/preferences.ts';
import { texts } from '../texts.ts';
import { type Pair, PriceState, unitsOf } from './market.tsx';
import { Swaps } from './pair-swaps.tsx';

const REFRESH_MS = 30_000;
const HOURS = { '24h': 24, '7d': 168, '30d': 720 } as const;
type Span = keyof typeof HOURS;
type Hour = { hour: string; price: string | null; volume: string; swaps: number };

const LINE = 220;
const GAP = 24;
const BARS = 40;
const HEIGHT = LINE + GAP + BARS + 22;
const LABEL_WIDTH = 76;
/** Room for prices with six digits. */
const AXIS = 68;
const HOUR_MS = 3_600_000;

export function PairPage() {
  const { params } = useRoute();
  const { query, hrefWith } = usePageQuery();
  const id = params.id ?? '';
  const span: Span = query.span === '24h' || query.span === '30d' ? query.span : '7d';
  const pairs = useResource('pairs', (signal) => callExact('GET /api/swap/pairs', { signal }), {
    everyMs: REFRESH_MS,
  });
  const history = useResource(
    `pair history ${id} ${span}`,
    (signal) => loadHistory(id, HOURS[span], signal),
    { everyMs: REFRESH_MS },
  );
  return (
    <Loading loaded={pairs.state.value} reload={pairs.reload}>
      {({ data }) => {
        const pair = data.find((one) => one.id === id);
        if (pair === undefined) return <Empty text={texts.market.unknown(id)} />;
        return (
          <>
            <PageHead
              title={pair.name}
              note={
                <a class="link" href="/console/market">
                  {texts.market.title}
                </a>
              }
            >
              <Choice
                label={texts.period}
                value={span}
                hrefOf={(value) => hrefWith({ span: value === '7d' ? undefined : value })}
                options={Object.keys(HOURS).map((value) => ({
                  value,
                  text: texts.market.spans[value as Span],
                }))}
              />
              <CopyCurl
                operation="GET /api/swap/price-history/{pair_id}"
                options={{ path: { pair_id: id }, query: { limit: String(HOURS[span]) } }}
              />
            </PageHead>
            <Summary pair={pair} hours={history.state.value.data} span={span} />
            <div class="columns">
              <section aria-labelledby="by-hour">
                <Loading loaded={history.state.value} reload={history.reload}>
                  {(hours) => <History hours={hours} unit={unitsOf(pair).unit} />}
                </Loading>
              </section>
              <Facts pair={pair} />
            </div>
            <Swaps pair={pair} />
          </>
        );
      }}
    </Loading>
  );
}

/** Prices and volumes by the hour, oldest first, with hours without swaps in between. */
async function loadHistory(id: string, count: number, signal: AbortSignal): Promise<Hour[]> {
  const options = { path: { pair_id: id }, query: { limit: String(count) }, signal };
  const [prices, volumes] = await Promise.all([
    callExact('GET /api/swap/price-history/{pair_id}', options),
    callExact('GET /api/swap/volume-history/{pair_id}', options),
  ]);
  const priceAt = new Map(prices.data.map(({ hour, price }) => [Date.parse(hour), price]));
  const volumeAt = new Map(volumes.data.map((one) => [Date.parse(one.hour), one]));
  const known = [...priceAt.keys(), ...volumeAt.keys()];
  if (known.length === 0) return [];
  const last = Math.max(...known);
  const first = Math.max(Math.min(...known), last - (count - 1) * HOUR_MS);
  let price: string | null = null;
  return Array.from({ length: (last - first) / HOUR_MS + 1 }, (_, index) => {
    const at = first + index * HOUR_MS;
    const volume = volumeAt.get(at);
    // In an hour without swaps, the pool keeps its price.
    price = priceAt.get(at) ?? price;
    return {
      hour: new Date(at).toISOString(),
      price,
      volume: volume?.volume ?? '0',
      swaps: Number(volume?.swaps ?? 0),
    };
  });
}

function Summary({ pair, hours, span }: { pair: Pair; hours: Hour[] | undefined; span: Span }) {
  const [first = '', second = ''] = pair.name.split('/');
  const state = status.state.value.data?.pairs.find(({ id }) => String(id) === pair.id);
  const swaps = hours?.reduce((sum, one) => sum + one.swaps, 0);
  return (
    <Figures>
      <Figure
        label={texts.market.pricePer(unitsOf(pair).unit, unitsOf(pair).of)}
        value={pair.latestPrice === null ? undefined : formatPrice(pair.latestPrice)}
        note={
          pair.updated_at === null ? (
            texts.market.notRead
          ) : (
            <>
              {texts.market.readBefore} <Age since={pair.updated_at} /> {texts.ago}
            </>
          )
        }
      />
      <Figure
        label={texts.market.volume}
        value={`$${formatMoney(pair.vol24h)}`}
        note={
          state?.volume_complete === false
            ? texts.market.incompleteNote
            : swaps === undefined
              ? ''
              : texts.market.swaps(formatCount(swaps), texts.market.spans[span])
        }
        tone={state?.volume_complete === false ? 'is-warn' : ''}
      />
      <Figure
        label={texts.market.oneLp}
        value={pair.lpPriceInUsd === null ? undefined : `$${formatMoney(pair.lpPriceInUsd)}`}
        note={pair.lpPriceInUsd === null ? texts.market.noLp : texts.market.fair}
      />
      <Figure
        label={texts.market.reserves}
        value={
          pair.reserve0 === null
            ? undefined
            : formatMoney(formatAmount(pair.reserve0, Number(pair.token0_decimals)).replaceAll(',', ''))
        }
        unit={first}
        note={
          pair.reserve1 === null
            ? ''
            : `${formatAmount(pair.reserve1, Number(pair.token1_decimals), 4)} ${second}`
        }
      />
    </Figures>
  );
}

function Facts({ pair }: { pair: Pair }) {
  const [first = '', second = ''] = pair.name.split('/');
  const { unit: valued } = unitsOf(pair);
  const price = status.state.value.data?.prices.find(
    ({ asset }) => asset.toLowerCase() === valued.toLowerCase(),
  );
  return (
    <section aria-labelledby="pair-facts">
      <h2 id="pair-facts">{texts.address.facts}</h2>
      <dl class="facts">
        <dt>{texts.market.contract}</dt>
        <dd>
          <Address value={pair.address} isLong />{' '}
          <Copy text={pair.address} label={texts.market.copyContract} />
        </dd>
        <dt>token0</dt>
        <dd>
          {texts.market.tokenFact(first, pair.token0_decimals)}{' '}
          <Copy text={pair.token0} label={texts.market.copyToken(first)} />
        </dd>
        <dt>token1</dt>
        <dd>
          {texts.market.tokenFact(second, pair.token1_decimals)}{' '}
          <Copy text={pair.token1} label={texts.market.copyToken(second)} />
        </dd>
        <dt>{texts.market.valueFrom}</dt>
        <dd>{valued}</dd>
        {price !== undefined && (
          <>
            <dt>{texts.market.priceOf(valued)}</dt>
            <dd>
              <PriceState price={price} />
              {price.price !== null && <span class="second">${formatPrice(price.price)}</span>}
            </dd>
          </>
        )}
        <dt>{texts.market.pool}</dt>
        <dd>{pair.reward_pid}</dd>
        <dt>{texts.market.network}</dt>
        <dd>{chain.state.value.data?.name ?? texts.none}</dd>
      </dl>
    </section>
  );
}

function History({ hours, unit }: { hours: readonly Hour[]; unit: string }) {
  const [cursor, setCursor] = useState<number | undefined>(undefined);
  const shown = cursor === undefined ? undefined : hours[cursor];
  const prices = hours.flatMap(({ price }) => (price === null ? [] : Number(price)));
  const nameOf = (hour: string) =>
    `${formatDay(Date.parse(hour), zone.value)} ${formatClock(Date.parse(hour), zone.value)}`;
  if (hours.length === 0) return <Empty text={texts.market.noHistory} />;
  return (
    <>
      <div class="section-head">
        <h2 id="by-hour">{texts.market.byHour}</h2>
        <div class="actions legend" aria-live={shown === undefined ? 'off' : 'polite'}>
          {shown !== undefined && <span class="medium">{nameOf(shown.hour)}</span>}
          <span>
            <Swatch color={1} />
            {shown === undefined
              ? texts.market.price
              : `${shown.price === null ? texts.none : formatPrice(shown.price)} ${unit}`}
          </span>
          <span>
            <Swatch color={5} />
            {shown === undefined ? texts.market.volumeUsd : `$${formatMoney(shown.volume)}`}
          </span>
        </div>
      </div>
      <Chart
        label={texts.market.chartLabel(hours.length, Math.min(...prices), Math.max(...prices), unit)}
        height={HEIGHT}
        count={hours.length}
        cursor={cursor}
        onCursor={setCursor}
        axisWidth={AXIS}
      >
        {(width) => <Plot hours={hours} width={width} cursor={cursor} />}
      </Chart>
      <AsTable
        caption={texts.market.byHour}
        head={[texts.from, `${texts.market.price}, ${unit}`, texts.market.volumeUsd, texts.market.swapCount]}
        rows={hours.map((one) => [
          nameOf(one.hour),
          one.price === null ? texts.none : formatDecimal(one.price),
          formatMoney(one.volume),
          formatCount(one.swaps),
        ])}
      />
      <p class="below">{texts.market.total(`$${formatMoney(sumOf(hours.map(({ volume }) => volume)))}`)}</p>
    </>
  );
}

/** The price as a line, which need not start at zero, above the volume as bars, which do. Hours without a price are gaps. */
function Plot({
  hours,
  width,
  cursor,
}: {
  hours: readonly Hour[];
  width: number;
  cursor: number | undefined;
}) {
  const step = width / hours.length;
  const values = hours.map(({ price }) => (price === null ? null : Number(price)));
  const present = values.filter((value) => value !== null);
  const [least, most] = [Math.min(...present), Math.max(...present)];
  const margin = (most - least) * 0.08 || most * 0.01 || 1;
  const y = scaleLinear()
    .domain([least - margin, most + margin])
    .nice(4)
    .range([LINE, 0]);
  const bars = scaleLinear()
    .domain([0, Math.max(1, ...hours.map(({ volume }) => Number(volume)))])
    .nice(1)
    .range([0, BARS]);
  const bottom = LINE + GAP + BARS;
  const xOf = (index: number) => index * step + step / 2;
  const path = line<number | null>()
    .defined((value) => value !== null)
    .x((_, index) => xOf(index))
    .y((value) => y(value ?? 0))(values);
  const newest = values.findLast((value) => value !== null) ?? undefined;
  const tagY = newest === undefined ? undefined : y(newest);
  const labels = labelsOf(hours, step);
  const format = y.tickFormat(4);
  return (
    <>
      {y.ticks(4).map((tick) => (
        <g key={tick}>
          <line class="grid" x1={0} x2={width} y1={y(tick)} y2={y(tick)} />
          {(tagY === undefined || Math.abs(y(tick) - tagY) > 14) && (
            <text x={width + 8} y={y(tick) + 4}>
              {format(tick)}
            </text>
          )}
        </g>
      ))}
      <line class="zero" x1={0} x2={width} y1={bottom} y2={bottom} />
      <text x={width + 8} y={bottom - BARS + 4}>
        ${formatTick(bars.domain()[1] ?? 0)}
      </text>
      {hours.map((one, index) => {
        const height = one.swaps === 0 ? 0 : Math.max(1, bars(Number(one.volume)));
        return (
          <g key={one.hour} class={cursor === undefined || cursor === index ? '' : 'is-faded'}>
            <rect
              class="c-5"
              x={index * step}
              y={bottom - height}
              width={Math.max(1, step - 1)}
              height={height}
            />
            {labels.has(index) && xOf(index) < width - LABEL_WIDTH / 2 && (
              <text x={index * step} y={HEIGHT - 4}>
                {labels.get(index)}
              </text>
            )}
          </g>
        );
      })}
      {path !== null && <path class="line-1" d={path} />}
      {newest !== undefined && tagY !== undefined && (
        <g>
          <line class="mark" x1={0} x2={width} y1={tagY} y2={tagY} />
          <rect class="tag" x={width + 3} y={tagY - 9} width={AXIS - 6} height={18} rx={3} />
          <text class="tag-text" x={width + 8} y={tagY + 4}>
            {formatPrice(String(newest))}
          </text>
        </g>
      )}
      {cursor !== undefined && (
        <g>
          <line class="mark" x1={xOf(cursor)} x2={xOf(cursor)} y1={0} y2={bottom} />
          {values[cursor] !== null && values[cursor] !== undefined && (
            <circle class="c-1" cx={xOf(cursor)} cy={y(values[cursor])} r={3.5} />
          )}
        </g>
      )}
    </>
  );
}

/** Labels of the time axis: the clock within two days, otherwise the days, each at its first hour. */
function labelsOf(hours: readonly Hour[], step: number): Map<number, string> {
  const isShort = hours.length <= 48;
  const labels = new Map<number, string>();
  let lastX = Number.NEGATIVE_INFINITY;
  hours.forEach(({ hour }, index) => {
    const at = Date.parse(hour);
    const isDayStart = formatClock(at, zone.value) === '00:00';
    if ((isShort || isDayStart) && (index - lastX) * step >= LABEL_WIDTH) {
      labels.set(index, isShort ? formatClock(at, zone.value) : formatDay(at, zone.value));
      lastX = index;
    }
  });
  return labels;
}
