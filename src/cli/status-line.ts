/**
 * Standard error on a terminal: log lines run above, and one line below them is redrawn, such as a progress bar.
 */
import type { BackfillDisplay, BackfillProgress } from '../ingest/backfill.ts';

type StatusLine = {
  /** For the log. */
  write(text: string): void;
  /** Takes the place of the line before; an empty text removes it. */
  draw(text: string): void;
  /** How many characters a line may have. */
  width(): number;
};

type Terminal = { write(text: string): unknown; columns?: number };

/** Back to the left edge, and erase to the right. Source: ECMA-48, EL. */
const ERASE = '\r\u001B[K';

export function createStatusLine(terminal: Terminal): StatusLine {
  let line = '';
  // A line that wraps could not be erased. Some terminals say that they have no columns.
  const width = () =>
    (terminal.columns === undefined || terminal.columns === 0 ? COLUMNS : terminal.columns) - 1;
  return {
    width,
    write(text) {
      terminal.write(line === '' ? text : `${ERASE}${text}${line.slice(0, width())}`);
    },
    draw(text) {
      const fitting = text.slice(0, width());
      if (fitting === line) return;
      terminal.write(`${ERASE}${fitting}`);
      line = fitting;
    },
  };
}

/** Of a terminal that does not tell. */
const COLUMNS = 80;
/** People read no faster than this. */
const DRAW_MS_MIN = 100;

/** Progress as a bar on the line below the log. */
export function barDisplay(statusLine: StatusLine): BackfillDisplay {
  let drawnMs = Number.NEGATIVE_INFINITY;
  return {
    show(progress) {
      const nowMs = performance.now();
      if (nowMs - drawnMs < DRAW_MS_MIN) return;
      drawnMs = nowMs;
      statusLine.draw(renderBar(progress, statusLine.width()));
    },
    end: () => statusLine.draw(''),
  };
}

const BAR_CELLS_MAX = 24;
const BAR_CELLS_MIN = 8;

/** As much as fits, the most wanted first; the bar takes what room is left. ASCII, which every terminal shows. */
function renderBar(
  { block, head, share, blocksPerSecond, transfersPerSecond, secondsLeft }: BackfillProgress,
  width: number,
): string {
  const facts = [
    ` ${(share * 100).toFixed(1)} %`,
    ...(secondsLeft === undefined ? [] : [`, ${describeSeconds(secondsLeft)} left`]),
    `, ${whole(blocksPerSecond)} blocks/s`,
    `, ${whole(transfersPerSecond)} transfers/s`,
    `, block ${whole(block)} of ${whole(head)}`,
  ];
  const frame = 'backfill []'.length;
  while (facts.length > 1 && frame + BAR_CELLS_MIN + facts.join('').length > width) facts.pop();
  const text = facts.join('');
  const cells = Math.min(BAR_CELLS_MAX, Math.max(BAR_CELLS_MIN, width - frame - text.length));
  const full = Math.round(share * cells);
  return `backfill [${'#'.repeat(full)}${'-'.repeat(cells - full)}]${text}`;
}

const whole = (value: number) => Math.round(value).toLocaleString('en');

/** The two largest units: 3 h 20 min, 4 min 10 s, 12 s. */
function describeSeconds(seconds: number): string {
  const all = Math.round(seconds);
  const [h, min, s] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  if (h > 0) return `${h} h ${min} min`;
  return min > 0 ? `${min} min ${s} s` : `${s} s`;
}
