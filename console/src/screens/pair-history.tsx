/**
 * The history of a swap pair by the hour: its price or the value of its reserves as a line, above the volume.
 */
import { scaleLinear } from 'd3-scale';
import { line } from 'd3-shape';
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { formatDecimal, formatMoney, formatPrice } from '../format/amount.ts';
import { sumOf } from '../format/decimal.ts';
import { formatCount, formatTick } from '../format/number.ts';
import { formatClock, formatDay } from '../format/time.ts';
import { AsTable, Chart, Swatch } from '../parts/chart.tsx';
import { Empty } from '../parts/page.tsx';
import { zone } from '../state/preferences.ts';
import { texts } from '../texts.ts';
import { type Pair, unitsOf } from './market.tsx';

const LINE = 220;
const GAP = 24;
const BARS = 40;
const HEIGHT = LINE + GAP + BARS + 22;
const LABEL_WIDTH = 76;
const HOUR_MS = 3_600_000;
/** Room for prices with six digits. A longer tag takes more. */
const AXIS_MIN = 68;
/** More than a digit of the tag takes. */
const DIGIT_WIDTH = 7;
const TAG_PADDING = 5;
const TAG_MARGIN = 6;

export type Hour = {
  hour: string;
  price: string | null;
  value: string | null;
  volume: string | null;
  swaps: number | null;
};
/** What the line shows, beside the volume. */
export type Shown = 'price' | 'value';

/** What the line shows: its texts, and how its numbers are written. */
type Series = {
  key: Shown;
  name: string;
  label(hours: number, least: number, most: number): string;
  format(number: string): string;
};

export function seriesOf(key: Shown, pair: Pair): Series {
  const { unit } = unitsOf(pair);
  const { market } = texts;
  if (key === 'value')
    return {
      key,
      name: market.valueUsd,
      label: market.valueLabel,
      format: (number) => `$${formatMoney(number)}`,
    };
  return {
    ...{ key, name: `${market.price}, ${unit}` },
    label: (hours, least, most) => market.chartLabel(hours, least, most, unit),
    format: formatPrice,
  };
}

export function History({
  hours,
  series,
  span,
  children,
}: {
  hours: readonly Hour[];
  series: Series;
  /** The time that they cover, such as `7 d`. */
  span: string;
  children: ComponentChildren;
}) {
  const [cursor, setCursor] = useState<number | undefined>(undefined);
  const shown = cursor === undefined ? undefined : hours[cursor];
  const numbers = hours.flatMap(({ [series.key]: number }) => (number === null ? [] : Number(number)));
  const shownNumber = shown?.[series.key] ?? undefined;
  const tag = tagOf(hours, series);
  const tagWidth = (tag?.text.length ?? 0) * DIGIT_WIDTH + 2 * TAG_PADDING;
  const axisWidth = Math.max(AXIS_MIN, tagWidth + TAG_MARGIN);
  const nameOf = (hour: string) =>
    `${formatDay(Date.parse(hour), zone.value)} ${formatClock(Date.parse(hour), zone.value)}`;
  if (hours.length === 0) return <Empty text={texts.market.noHistory} />;
  return (
    <>
      <div class="section-head">
        <h2 id="by-hour">{texts.market.byHour(span)}</h2>
        <div class="actions legend" aria-live={shown === undefined ? 'off' : 'polite'}>
          {shown !== undefined && <span class="medium">{nameOf(shown.hour)}</span>}
          <span>
            <Swatch color={1} />
            {shown === undefined
              ? series.name
              : shownNumber === undefined
                ? texts.none
                : series.format(shownNumber)}
          </span>
          <span>
            <Swatch color={5} />
            {shown === undefined
              ? texts.market.volumeUsd
              : shown.volume === null
                ? texts.none
                : `$${formatMoney(shown.volume)}`}
          </span>
          {children}
        </div>
      </div>
      <Chart
        label={
          numbers.length === 0
            ? texts.market.unknownLabel(hours.length)
            : series.label(hours.length, Math.min(...numbers), Math.max(...numbers))
        }
        height={HEIGHT}
        count={hours.length}
        cursor={cursor}
        onCursor={setCursor}
        axisWidth={axisWidth}
      >
        {(width) => <Plot {...{ hours, series, width, cursor, tag }} tagWidth={axisWidth - TAG_MARGIN} />}
      </Chart>
      <AsTable
        caption={texts.market.byHour(span)}
        head={[texts.from, series.name, texts.market.volumeUsd, texts.market.swapCount]}
        rows={hours.map((one) => [
          nameOf(one.hour),
          formatExact(one[series.key]),
          one.volume === null ? texts.none : formatMoney(one.volume),
          one.swaps === null ? texts.none : formatCount(one.swaps),
        ])}
      />
      <Total hours={hours} span={span} />
    </>
  );
}

/** The sums of the known hours, and how many are unknown. */
function Total({ hours, span }: { hours: readonly Hour[]; span: string }) {
  const known = hours.flatMap(({ volume, swaps }) =>
    volume === null || swaps === null ? [] : [{ volume, swaps }],
  );
  const volume = formatMoney(sumOf(known.map((one) => one.volume)));
  const swapCount = known.reduce((sum, { swaps }) => sum + swaps, 0);
  return (
    <p class="below">
      {texts.market.total(`$${volume}`, swapCount, span)}
      {known.length < hours.length && texts.market.unknownHours(hours.length - known.length)}
    </p>
  );
}

type Tag = { value: number; text: string };

/** The newest number of the line, which stands at its end. */
function tagOf(hours: readonly Hour[], { key }: Series): Tag | undefined {
  const newest = hours.findLast((hour) => hour[key] !== null)?.[key] ?? undefined;
  if (newest === undefined) return undefined;
  const value = Number(newest);
  return { value, text: key === 'value' ? formatTick(Math.round(value)) : formatPrice(newest) };
}

const formatExact = (number: string | null) => (number === null ? texts.none : formatDecimal(number));

/** The series as a line, which need not start at zero, above the volume as bars, which do. Hours without a number are gaps. */
function Plot({
  hours,
  series,
  width,
  cursor,
  tag,
  tagWidth,
}: {
  hours: readonly Hour[];
  series: Series;
  width: number;
  cursor: number | undefined;
  tag: Tag | undefined;
  tagWidth: number;
}) {
  const step = width / hours.length;
  const values = hours.map(({ [series.key]: number }) => (number === null ? null : Number(number)));
  const present = values.filter((value) => value !== null);
  const [least, most] = [Math.min(...present), Math.max(...present)];
  const margin = (most - least) * 0.08 || most * 0.01 || 1;
  const y = scaleLinear()
    .domain([least - margin, most + margin])
    .nice(4)
    .range([LINE, 0]);
  const bars = scaleLinear()
    .domain([0, Math.max(1, ...hours.map(({ volume }) => Number(volume ?? 0)))])
    .nice(1)
    .range([0, BARS]);
  const bottom = LINE + GAP + BARS;
  const xOf = (index: number) => index * step + step / 2;
  const path = line<number | null>()
    .defined((value) => value !== null)
    .x((_, index) => xOf(index))
    .y((value) => y(value ?? 0))(values);
  const tagY = tag === undefined ? undefined : y(tag.value);
  const labels = labelsOf(hours, step);
  const format = series.key === 'value' ? formatTick : y.tickFormat(4);
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
        const height = (one.swaps ?? 0) === 0 ? 0 : Math.max(1, bars(Number(one.volume ?? 0)));
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
      {tag !== undefined && tagY !== undefined && (
        <g>
          <line class="mark" x1={0} x2={width} y1={tagY} y2={tagY} />
          <rect class="tag" x={width + 3} y={tagY - 9} width={tagWidth} height={18} rx={3} />
          <text class="tag-text" x={width + 3 + TAG_PADDING} y={tagY + 4}>
            {tag.text}
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
    // Midnight is inside an hour in some zones, and is skipped in others.
    const isDayStart = formatDay(at, zone.value) !== formatDay(at - HOUR_MS, zone.value);
    if ((isShort || isDayStart) && (index - lastX) * step >= LABEL_WIDTH) {
      labels.set(index, isShort ? formatClock(at, zone.value) : formatDay(at, zone.value));
      lastX = index;
    }
  });
  return labels;
}
