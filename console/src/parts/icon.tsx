/**
 * Icons of 14 × 14 units, drawn with the color of the text. The shapes of states differ, so that none needs its color.
 */
type Shape = { stroke?: string; fill?: string; mark?: string; dashed?: string; pale?: string };

const CIRCLE = 'M7 1.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11Z';

const shapes = {
  // States
  delivered: { fill: CIRCLE, mark: 'm4.5 7.2 1.8 1.7 3.3-3.8' },
  failing: { fill: 'M7 1.2 13.3 12.5H.7Z', mark: 'M7 5.3v3.2M7 10.5v.1' },
  retrying: { stroke: `${CIRCLE}M7 4.2v3l1.9 1.2` },
  waiting: { stroke: CIRCLE },
  sending: { pale: CIRCLE, stroke: 'M7 1.5A5.5 5.5 0 0 1 12.5 7' },
  held: {
    stroke:
      'M3.5 1.8h7a1.7 1.7 0 0 1 1.7 1.7v7a1.7 1.7 0 0 1-1.7 1.7h-7a1.7 1.7 0 0 1-1.7-1.7v-7a1.7 1.7 0 0 1 1.7-1.7ZM5.5 5v4M8.5 5v4',
  },
  orphaned: { dashed: CIRCLE, stroke: 'M3.4 10.6 10.6 3.4' },
  cancelled: { stroke: `${CIRCLE}M4.8 4.8l4.4 4.4m0-4.4-4.4 4.4` },
  hung: { stroke: CIRCLE, fill: 'M7 1.5a5.5 5.5 0 0 1 0 11Z' },
  suspended: { stroke: `${CIRCLE}M5.4 4.8v4.4M8.6 4.8v4.4` },
  alert: { fill: 'M7 2.8 12 11.2H2Z' },
  // Screens
  overview: { stroke: 'M2.2 12.2V6.6L7 2.2l4.8 4.4v5.6M5.5 12.2V8.7h3v3.5' },
  deliveries: { stroke: 'M12.5 1.5 1.6 5.7l4.5 2.2 2.2 4.5ZM12.5 1.5 6.1 7.9' },
  addresses: {
    stroke:
      'M7 12.6c2.9-2.5 4.3-4.7 4.3-6.7a4.3 4.3 0 0 0-8.6 0c0 2 1.4 4.2 4.3 6.7ZM7 4.5a1.4 1.4 0 1 0 0 2.8 1.4 1.4 0 0 0 0-2.8Z',
  },
  receivers: { stroke: 'M4.6 1.5v3M9.4 1.5v3M2.8 4.5h8.4v2a4.2 4.2 0 0 1-8.4 0ZM7 10.7v1.8' },
  points: { stroke: 'm7 1.7 1.6 3.4 3.7.4-2.7 2.6.7 3.7L7 10l-3.3 1.8.7-3.7-2.7-2.6 3.7-.4Z' },
  market: { stroke: 'M1.7 10.7 5 6.7l2.5 2.1 4.6-5.6M9.2 2.8h3.1v3' },
  supply: { stroke: `${CIRCLE}M7 1.5V7l4.4 3.3` },
  system: { stroke: 'M2 3.2h10v3H2ZM2 7.8h10v3H2ZM4.2 4.7h.1M4.2 9.3h.1' },
  watchers: {
    stroke:
      'M5.5 6.5a2.2 2.2 0 1 0 0-4.4 2.2 2.2 0 0 0 0 4.4ZM1.5 12c0-2.2 1.6-3.7 4-3.7s4 1.5 4 3.7M9.2 2.4a2.2 2.2 0 0 1 0 3.9M10.8 8.7c1.1.6 1.7 1.8 1.7 3.3',
  },
  secrets: {
    stroke: 'M4.6 6.8a2.7 2.7 0 1 0 0 5.4 2.7 2.7 0 0 0 0-5.4ZM6.5 7.6l5.6-5.6M9.8 4.3l1.7 1.7',
  },
  keys: { stroke: 'M2.5 6.5h9v5.5h-9ZM4.5 6.5v-2a2.5 2.5 0 0 1 5 0v2' },
  // Actions
  copy: { stroke: 'M5 5h7v7H5ZM9.5 5V2H2v7.5h3' },
  check: { stroke: 'm2.5 7.5 3 3 6-7' },
  close: { stroke: 'm3.5 3.5 7 7m0-7-7 7' },
  up: { stroke: 'M7 11.5v-9M3.2 6.2 7 2.5l3.8 3.7' },
  down: { stroke: 'M7 2.5v9M3.2 7.8 7 11.5l3.8-3.7' },
  left: { stroke: 'M8.7 3 4.7 7l4 4' },
  right: { stroke: 'm5.3 3 4 4-4 4' },
  search: { stroke: 'M6 2a4 4 0 1 0 0 8 4 4 0 0 0 0-8ZM9 9l3.2 3.2' },
  plus: { stroke: 'M7 2.5v9M2.5 7h9' },
  moon: { stroke: 'M11.9 8.4A5.2 5.2 0 1 1 5.6 2.1a4.2 4.2 0 0 0 6.3 6.3Z' },
  sun: {
    stroke:
      'M7 4.5a2.5 2.5 0 1 0 0 5 2.5 2.5 0 0 0 0-5ZM7 .8v1.4M7 11.8v1.4M.8 7h1.4M11.8 7h1.4M2.6 2.6l1 1M10.4 10.4l1 1M11.4 2.6l-1 1M3.6 10.4l-1 1',
  },
  external: { stroke: 'M5.5 2.5h-3v9h9v-3M8.2 2.5h3.3v3.3M11.3 2.7 6.7 7.3' },
  menu: { stroke: 'M2 4h10M2 7h10M2 10h10' },
  filter: { stroke: 'M1.8 3.2h10.4M3.8 7h6.4M5.8 10.8h2.4' },
  descending: { fill: 'M7 10 3.5 4.8h7Z' },
  leave: { stroke: 'M5.5 2h-3v10h3M8.5 4.2 11.3 7l-2.8 2.8M11.3 7H5.5' },
  upload: { stroke: 'M7 9V2M4.2 4.7 7 2l2.8 2.7M2.2 9v3h9.6V9' },
} satisfies Record<string, Shape>;

export type IconName = keyof typeof shapes;

/** Decoration: the word beside it says the same. */
export function Icon({ name, tone = '' }: { name: IconName; tone?: string }) {
  const { stroke, fill, mark, dashed, pale }: Shape = shapes[name];
  return (
    <svg
      class={`icon ${tone}`}
      viewBox="0 0 14 14"
      fill="none"
      stroke="currentColor"
      stroke-width="1.4"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
    >
      {fill !== undefined && (
        <path
          d={fill}
          fill="currentColor"
          stroke={name === 'failing' ? 'currentColor' : 'none'}
          stroke-width="0.8"
        />
      )}
      {pale !== undefined && <path d={pale} opacity="0.35" />}
      {dashed !== undefined && <path d={dashed} stroke-dasharray="2.2 2" />}
      {stroke !== undefined && <path d={stroke} />}
      {mark !== undefined && <path d={mark} stroke="var(--surface)" />}
    </svg>
  );
}

/** The bell of the brand. */
export function Bell() {
  return (
    <svg
      viewBox="0 0 18 18"
      fill="none"
      stroke="currentColor"
      stroke-width="1.8"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
    >
      <path
        d="M9 2.1a4.5 4.5 0 0 0-4.5 4.5c0 3.9-1.9 5.3-1.9 5.3h12.8s-1.9-1.4-1.9-5.3A4.5 4.5 0 0 0 9 2.1Z"
        fill="currentColor"
        fill-opacity="0.16"
      />
      <path d="M7.3 15a1.8 1.8 0 0 0 3.4 0" />
    </svg>
  );
}
