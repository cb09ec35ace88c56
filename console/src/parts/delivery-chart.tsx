/**
 * Deliveries by hour or day. Failed attempts hang below on a scale of their own, because on the scale of the deliveries half a
 * percent would be half a pixel.
 */
import { scaleLinear } from 'd3-scale';
import { useState } from 'preact/hooks';
import type { Statistics } from '../api/types.ts';
import { formatCount, formatTick } from '../format/number.ts';
import { formatClock, formatDay } from '../format/time.ts';
import { zone } from '../state/preferences.ts';
import { texts } from '../texts.ts';
import { AsTable, Chart, Swatch } from './chart.tsx';

const BARS = 104;
const GAP = 22;
const FAILED = 32;
const HEIGHT = BARS + GAP + FAILED + 24;
const LABEL_WIDTH = 72;
const GAP_BETWEEN = 0.12;
/** Below this a bar is invisible, and something that happened must show. */
const BAR_MIN = 1;

export function DeliveryChart({ statistics }: { statistics: Statistics }) {
  const [cursor, setCursor] = useState<number | undefined>(undefined);
  const { buckets, period, totals } = statistics;
  // The service counts by days in UTC.
  const labelOf = (from: string) =>
    period === '24h' ? formatClock(Date.parse(from), zone.value) : formatDay(Date.parse(from), 'utc');
  const shown = cursor === undefined ? undefined : buckets[cursor];
  const title = texts.overview.chart[period];
  const counts = shown ?? totals;
  return (
    <section aria-labelledby="by-time">
      <div class="section-head">
        <h2 id="by-time">{title}</h2>
        <div class="actions legend" aria-live={cursor === undefined ? 'off' : 'polite'}>
          {shown !== undefined && <span class="medium">{labelOf(shown.from)}</span>}
          <span>
            <Swatch color={1} />
            {texts.overview.first}
            {shown !== undefined && ` ${formatCount(counts.first_attempt)}`}
          </span>
          <span>
            <Swatch color={3} />
            {texts.overview.later}
            {shown !== undefined && ` ${formatCount(counts.delivered - counts.first_attempt)}`}
          </span>
          <span>
            <Swatch color={4} isTriangle />
            {shown === undefined
              ? texts.overview.failedBelow
              : `${texts.overview.failed} ${formatCount(counts.failed_attempts)}`}
          </span>
        </div>
      </div>
      <Chart
        label={texts.overview.chartLabel(period, totals)}
        height={HEIGHT}
        count={buckets.length}
        cursor={cursor}
        onCursor={setCursor}
      >
        {(width) => <Bars buckets={buckets} width={width} cursor={cursor} labelOf={labelOf} />}
      </Chart>
      <AsTable
        caption={title}
        head={[
          texts.from,
          texts.overview.delivered,
          texts.overview.first,
          texts.overview.failed,
          texts.overview.attempts,
        ]}
        rows={buckets.map((one) => [
          labelOf(one.from),
          ...[one.delivered, one.first_attempt, one.failed_attempts, one.attempts].map(formatCount),
        ])}
      />
    </section>
  );
}

function Bars({
  buckets,
  width,
  cursor,
  labelOf,
}: {
  buckets: Statistics['buckets'];
  width: number;
  cursor: number | undefined;
  labelOf(from: string): string;
}) {
  const step = width / buckets.length;
  const bar = Math.max(1, step * (1 - GAP_BETWEEN));
  const up = scaleLinear()
    .domain([0, Math.max(1, ...buckets.map(({ delivered }) => delivered))])
    .nice(3)
    .range([BARS, 0]);
  const down = scaleLinear()
    .domain([0, Math.max(1, ...buckets.map(({ failed_attempts: failed }) => failed))])
    .nice(1)
    .range([0, FAILED]);
  const failedTop = BARS + GAP;
  const labelEvery = Math.max(1, Math.ceil(LABEL_WIDTH / step));
  return (
    <>
      {wholeTicks(up.ticks(3)).map((tick) => (
        <g key={tick}>
          <line class={tick === 0 ? 'zero' : 'grid'} x1={0} x2={width} y1={up(tick)} y2={up(tick)} />
          <text x={width + 8} y={up(tick) + 4}>
            {formatTick(tick)}
          </text>
        </g>
      ))}
      {[0, down.domain()[1] ?? 1].map((tick) => (
        <g key={tick}>
          <line
            class={tick === 0 ? 'zero' : 'grid'}
            x1={0}
            x2={width}
            y1={failedTop + down(tick)}
            y2={failedTop + down(tick)}
          />
          <text x={width + 8} y={failedTop + down(tick) + 4}>
            {formatTick(tick)}
          </text>
        </g>
      ))}
      {buckets.map((one, index) => {
        const x = index * step + (step - bar) / 2;
        const isLast = index === buckets.length - 1;
        const isFaded = cursor !== undefined && cursor !== index;
        const later = one.delivered - one.first_attempt;
        const firstHeight = heightOf(one.first_attempt, BARS - up(one.first_attempt));
        const laterHeight = heightOf(later, BARS - up(later));
        return (
          <g key={one.from}>
            <g class={isFaded ? 'is-faded' : isLast ? 'is-open-bucket' : ''}>
              <rect class="c-1" x={x} y={BARS - firstHeight} width={bar} height={firstHeight} />
              <rect class="c-3" x={x} y={BARS - firstHeight - laterHeight} width={bar} height={laterHeight} />
              <rect
                class="c-4"
                x={x}
                y={failedTop}
                width={bar}
                height={heightOf(one.failed_attempts, down(one.failed_attempts))}
              />
            </g>
            {(isLast ||
              (index % labelEvery === 0 && (buckets.length - 1 - index) * step > LABEL_WIDTH / 2)) && (
              <text x={isLast ? x + bar : x} y={HEIGHT - 4} text-anchor={isLast ? 'end' : 'start'}>
                {isLast ? texts.now : labelOf(one.from)}
              </text>
            )}
          </g>
        );
      })}
    </>
  );
}

const heightOf = (count: number, height: number): number => (count === 0 ? 0 : Math.max(BAR_MIN, height));

/** Half a delivery doesn't exist. */
const wholeTicks = (ticks: number[]): number[] => ticks.filter(Number.isInteger);
