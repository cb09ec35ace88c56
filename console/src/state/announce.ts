/**
 * One polite live region for the whole page. Screen readers say at most one text every ten seconds.
 */
import { type Signal, signal } from '@preact/signals';

const QUIET_MS = 10_000;

export const announcement: Signal<string> = signal('');

let saidAt = Number.NEGATIVE_INFINITY;
let timer: ReturnType<typeof setTimeout> | undefined;

/** Says the text now. */
export function announce(text: string): void {
  clearTimeout(timer);
  saidAt = performance.now();
  announcement.value = announcement.value === text ? `${text} ` : text;
}

/** Says what `describe` returns by then, if anything, once the last announcement is old enough. */
export function announceSoon(describe: () => string): void {
  clearTimeout(timer);
  const say = () => {
    const text = describe();
    if (text !== '') announce(text);
  };
  timer = setTimeout(say, Math.max(0, saidAt + QUIET_MS - performance.now()));
}
