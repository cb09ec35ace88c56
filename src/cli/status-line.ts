/**
 * Shares a terminal between the log and one line below it that is redrawn in place, such as a progress bar.
 */
import type { BackfillDisplay, BackfillProgress } from '../ingest/backfill.ts';

type StatusLine = {
  /** Writes log lines above the line. */
  write(text: string): void;
  /** Replaces the line; an empty text removes it. */
  draw(text: string): void;
  /** The number of characters that fit. */
  width(): number;
};

type Terminal = { write(text: string): unknown; columns?: number };

/** Back to the left edge, and erase to the right. Source: ECMA-48, EL. */
const ERASE = '\r\u001B[K';

export function createStatusLine(terminal: Terminal): StatusLine {
  let line = '';
  // One column less, because a line that wraps could not be erased. Some terminals report 0 columns.
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

/** Width of a terminal that doesn't report one. */
const COLUMNS = 80;
/** Redrawing more often would not help a reader. */
const DRAW_MS_MIN = 100;

/** Draws progress as a bar on the line below the log. */
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

/** Drops the least important facts until the rest fits; the bar fills the remaining width. ASCII works on every terminal. */
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
