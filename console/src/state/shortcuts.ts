/**
 * Keys that do something without a field having the focus. Screens add theirs while they are shown.
 */
import { useLayoutEffect, useRef } from 'preact/hooks';
import { hasShortcuts } from './preferences.ts';

type Handler = (event: KeyboardEvent) => void;

/** How long after `g` the second key may come. */
const SEQUENCE_MS_MAX = 1_500;
const handlers = new Map<string, Handler[]>();
let prefix: { key: string; at: number } | undefined;

/**
 * Calls `handler` on a key, or on two in a row: `x`, `?`, `Shift+R`, `g o`. Of several, the one that was added last counts. Undefined
 * adds none.
 */
export function useShortcut(keys: string, handler: Handler | undefined): void {
  const newest = useRef(handler);
  newest.current = handler;
  const isOn = handler !== undefined;
  // Before it is painted. An Esc that followed at once would otherwise reach what is under a question.
  useLayoutEffect(() => {
    if (!isOn) return undefined;
    const own: Handler = (event) => newest.current?.(event);
    handlers.set(keys, [...(handlers.get(keys) ?? []), own]);
    return () => {
      handlers.set(
        keys,
        (handlers.get(keys) ?? []).filter((one) => one !== own),
      );
    };
  }, [keys, isOn]);
}

/** Called once. */
export function listenForShortcuts(): void {
  document.addEventListener('keydown', (event) => {
    if (!hasShortcuts.value || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey)
      return;
    // A key that is held would act again and again. Rows handle held arrows themselves.
    if (event.repeat || isInField(event.target) || document.querySelector('dialog[open]') !== null) return;
    const isSequence = prefix !== undefined && event.timeStamp - prefix.at < SEQUENCE_MS_MAX;
    const key = event.shiftKey && /^[A-Z]$/.test(event.key) ? `Shift+${event.key}` : event.key;
    const keys = isSequence && prefix !== undefined ? `${prefix.key} ${key}` : key;
    prefix = undefined;
    const handler = handlers.get(keys)?.at(-1);
    if (handler !== undefined) {
      event.preventDefault();
      handler(event);
    } else if ([...handlers].some(([name, list]) => list.length > 0 && name.startsWith(`${keys} `))) {
      prefix = { key: keys, at: event.timeStamp };
    }
  });
}

function isInField(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    target.matches('input:not([type=checkbox]), select, textarea, [contenteditable]')
  );
}
