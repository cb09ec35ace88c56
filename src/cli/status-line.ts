/**
 * Standard error on a terminal: log lines run above, and one line below them is drawn anew, such as a progress bar.
 */
import type { BackfillDisplay, BackfillProgress } from '../ingest/backfill.ts';

export type StatusLine = {
  /** For the log. */
  write(text: string): void;
  /** Takes the place of the line before; an empty text removes it. */
  draw(text: string): void;
};

export type Terminal = { write(text: string): unknown; columns?: number };

/** Back to the left edge, and erase to the right. Source: ECMA-48, EL. */
const ERASE = '\r\u001B[K';

export function createStatusLine(terminal: Terminal): StatusLine {
  let line = '';
  return {
    write(text) {
      terminal.write(line === '' ? text : `${ERASE}${text}${line}`);
    },
    draw(text) {
      // A line that wraps could not be erased.
      const fitting = text.slice(0, Math.max(0, (terminal.columns ?? COLUMNS) - 1));
      if (fitting === line) return;
      terminal.write(`${ERASE}${fitting}`);
      line = fitting;
    },
  };
}

/** Of a terminal that does not tell. */
const COLUMNS = 80;
/** Faster than this nobody reads. */
const DRAW_MS_MIN = 100;

/** Progress as a bar on the line below the log. */
export function barDisplay(statusLine: StatusLine): BackfillDisplay {
  let drawnMs = Number.NEGATIVE_INFINITY;
  return {
    show(progress) {
      const nowMs = performance.now();
      if (nowMs - drawnMs < DRAW_MS_MIN) return;
      drawnMs = nowMs;
      statusLine.draw(renderBar(progress));
    },
    end: () => statusLine.draw(''),
  };
}

const BAR_CELLS = 24;

function renderBar({
  block,
  head,
  share,
  blocksPerSecond,
  transfersPerSecond,
  secondsLeft,
}: BackfillProgress): string {
  const full = Math.round(share * BAR_CELLS);
  const bar = `${'█'.repeat(full)}${'░'.repeat(BAR_CELLS - full)}`;
  const left = secondsLeft === undefined ? '' : `, ${describeSeconds(secondsLeft)} left`;
  return `back-fill ${bar} ${(share * 100).toFixed(1)} %, block ${whole(block)} of ${whole(head)}${left}, ${whole(blocksPerSecond)} blocks/s, ${whole(transfersPerSecond)} transfers/s`;
}

const whole = (value: number) => Math.round(value).toLocaleString('en');

/** The two largest units: 3 h 20 min, 4 min 10 s, 12 s. */
function describeSeconds(seconds: number): string {
  const all = Math.round(seconds);
  const [h, min, s] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  if (h > 0) return `${h} h ${min} min`;
  return min > 0 ? `${min} min ${s} s` : `${s} s`;
}
