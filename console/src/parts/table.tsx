/**
 * Tables: a caption, a region that scrolls by itself, and rows that are one stop for the Tab key and are walked with arrows.
 */
import type { ComponentChildren } from 'preact';
import { useCallback, useRef } from 'preact/hooks';
import { useShortcut } from '../state/shortcuts.ts';

/** The link of a row, which the whole row activates. */
const LINK = 'a.row-link';
/** Steps for keys. Infinity leads to the first and the last row. */
const STEPS: Record<string, number> = {
  ArrowDown: 1,
  j: 1,
  ArrowUp: -1,
  k: -1,
  Home: Number.NEGATIVE_INFINITY,
  End: Number.POSITIVE_INFINITY,
};

export function Table({
  caption,
  isWide = false,
  children,
}: {
  caption: string;
  isWide?: boolean;
  children: ComponentChildren;
}) {
  const region = useRef<HTMLDivElement>(null);
  const moveFrom = useCallback((event: KeyboardEvent) => {
    const links = [...(region.current?.querySelectorAll<HTMLElement>(LINK) ?? [])];
    const step = STEPS[event.key];
    if (links.length === 0 || step === undefined) return;
    const row = document.activeElement?.closest('tr');
    const from = links.findIndex((link) => link.closest('tr') === row);
    const to = from === -1 ? (step > 0 ? 0 : links.length - 1) : from + step;
    links[Math.max(0, Math.min(links.length - 1, to))]?.focus();
    event.preventDefault();
  }, []);
  // From anywhere on the page, j and k lead into the list.
  useShortcut('j', moveFrom);
  useShortcut('k', moveFrom);
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for fields
    <div
      ref={region}
      class="table"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard
      tabIndex={0}
      role="group"
      aria-label={caption}
      onKeyDown={(event) => {
        if (event.target instanceof HTMLElement && event.target.closest('tbody tr') !== null) moveFrom(event);
      }}
      onFocusIn={(event) => roam(region.current, event.target)}
    >
      <table class={isWide ? 'wide' : ''}>
        <caption class="hidden">{caption}</caption>
        {children}
      </table>
    </div>
  );
}

/** A row whose link is followed by a click anywhere on it. */
export function LinkRow({
  isCurrent = false,
  class: name = '',
  children,
}: {
  isCurrent?: boolean;
  class?: string;
  children: ComponentChildren;
}) {
  return (
    <tr
      class={`is-link ${name}`}
      aria-current={isCurrent ? 'true' : undefined}
      onClick={(event) => {
        const { target, currentTarget } = event;
        if (!(target instanceof Element) || target.closest('a, button, input, label') !== null) return;
        if (getSelection()?.isCollapsed === false) return;
        currentTarget.querySelector<HTMLElement>(LINK)?.click();
      }}
    >
      {children}
    </tr>
  );
}

/** Only the row that had the focus last is a stop for the Tab key. */
function roam(region: HTMLElement | null, target: EventTarget | null): void {
  if (!(target instanceof HTMLElement) || !target.matches(LINK)) return;
  for (const link of region?.querySelectorAll<HTMLElement>(LINK) ?? [])
    link.tabIndex = link === target ? 0 : -1;
}
