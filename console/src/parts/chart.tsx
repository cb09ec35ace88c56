/**
 * The frame of every chart: it measures its width, moves a cursor from bucket to bucket by pointer and by arrow keys, and has a
 * table behind it.
 */
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { texts } from '../texts.ts';

/** Room for the labels of the axis, right of the plot. */
const AXIS_WIDTH = 46;
const WIDTH_BEFORE_LAYOUT = 800;

type Props = {
  /** Range, extremes and newest value in words. */
  label: string;
  height: number;
  count: number;
  cursor: number | undefined;
  onCursor(index: number | undefined): void;
  /** Room for the axis. 0 if the chart has none. */
  axisWidth?: number;
  /** Draws into a plot of this width. */
  children(plotWidth: number): ComponentChildren;
};

export function Chart({ label, height, count, cursor, onCursor, axisWidth = AXIS_WIDTH, children }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(WIDTH_BEFORE_LAYOUT);
  useEffect(() => {
    const { current } = frame;
    if (current === null) return undefined;
    setWidth(current.clientWidth);
    const observer = new ResizeObserver(() => setWidth(current.clientWidth));
    observer.observe(current);
    return () => observer.disconnect();
  }, []);
  const plotWidth = Math.max(1, width - axisWidth);
  const moveTo = (index: number) => onCursor(Math.max(0, Math.min(count - 1, index)));
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step !== undefined) moveTo((cursor ?? (step < 0 ? count : -1)) + step);
    else if (event.key === 'Home') moveTo(0);
    else if (event.key === 'End') moveTo(count - 1);
    else if (event.key === 'Escape') onCursor(undefined);
    else return;
    event.preventDefault();
  };
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for fields
    <div
      ref={frame}
      class="chart-frame"
      role="group"
      aria-label={texts.chartKeys}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: arrow keys move the cursor of the chart
      tabIndex={0}
      onKeyDown={onKeyDown}
      onBlur={() => onCursor(undefined)}
      onPointerMove={(event) => {
        const left = event.clientX - event.currentTarget.getBoundingClientRect().left;
        if (left <= plotWidth) moveTo(Math.floor((left / plotWidth) * count));
      }}
      onPointerLeave={() => onCursor(undefined)}
    >
      <svg class="chart" width={width} height={height} role="img" aria-label={label}>
        {children(plotWidth)}
      </svg>
    </div>
  );
}

/** The chart's data for those who read it as a table. */
export function AsTable({
  caption,
  head,
  rows,
}: {
  caption: string;
  head: readonly string[];
  rows: readonly (readonly (string | number)[])[];
}) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details class="as-table" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{texts.asTable}</summary>
      {isOpen && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard
        // biome-ignore lint/a11y/useSemanticElements: a fieldset is for fields
        <div class="table" tabIndex={0} role="group" aria-label={caption}>
          <table>
            <caption class="hidden">{caption}</caption>
            <thead>
              <tr>
                {head.map((name, index) => (
                  <th key={name} class={index === 0 ? '' : 'right'}>
                    {name}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map(([first = '', ...others], row) => (
                // A clock shows the same hour twice when summer time ends.
                <tr key={row}>
                  <td>{first}</td>
                  {others.map((value, index) => (
                    <td key={index} class="right">
                      {value}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}

/** The colored mark of a series in a legend. */
export function Swatch({
  color,
  isTriangle = false,
}: {
  color: 1 | 2 | 3 | 4 | 5 | 6;
  isTriangle?: boolean;
}) {
  return (
    <svg viewBox="0 0 10 10" aria-hidden="true">
      {isTriangle ? (
        <path class={`c-${color}`} d="M5 1 10 9.5H0Z" />
      ) : (
        <rect class={`c-${color}`} width="10" height="10" rx="2" />
      )}
    </svg>
  );
}

/** A horizontal bar from 0 to 1. Its width is an SVG attribute, because the policy forbids style attributes. */
export function Meter({ share }: { share: number }) {
  return (
    <svg class="meter" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
      <rect class="ground" width="100" height="6" rx="1" />
      <rect class="c-1" width={Math.max(share > 0 ? 0.4 : 0, Math.min(1, share) * 100)} height="6" rx="1" />
    </svg>
  );
}
