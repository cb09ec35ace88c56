/**
 * Tables: a caption, a region that scrolls by itself, and rows that are one stop for the Tab key and are walked with arrows.
 */
import type { ComponentChildren } from 'preact';
import { useCallback, useLayoutEffect, useRef } from 'preact/hooks';
import { isSmall } from '../state/screen.ts';
import { useShortcut } from '../state/shortcuts.ts';

/** Rows of tables and of lists for small screens. */
const ROW = 'tbody tr, ul.rows > li';
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
  const { region, ...handlers } = useRowKeys<HTMLDivElement>();
  const { value: needsHeads } = isSmall;
  useLayoutEffect(() => {
    if (needsHeads) nameCells(region.current);
  });
  return (
    // biome-ignore lint/a11y/useSemanticElements: a fieldset is for fields
    <div
      ref={region}
      class="table"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by keyboard
      tabIndex={0}
      role="group"
      aria-label={caption}
      {...handlers}
    >
      <table class={isWide ? 'wide' : ''}>
        <caption class="hidden">{caption}</caption>
        {children}
      </table>
    </div>
  );
}

/** Gives each cell the head of its column, which stands before it where cells stand below each other. */
function nameCells(region: HTMLElement | null): void {
  const [first, ...rows] = region?.querySelectorAll('tr') ?? [];
  const heads = Array.from(first?.cells ?? [], ({ textContent }) => textContent ?? '');
  for (const row of rows) {
    Array.from(row.cells).forEach((cell, place) => {
      cell.dataset.head = heads[place] ?? '';
    });
  }
}

/** Rows of two lines, for small screens. */
export function Lines({ children }: { children: ComponentChildren }) {
  const { region, ...handlers } = useRowKeys<HTMLUListElement>();
  return (
    <ul class="rows" ref={region} {...handlers}>
      {children}
    </ul>
  );
}

/** Keys that move the focus from row to row, within `region` and with j and k from anywhere on the page. */
function useRowKeys<E extends HTMLElement>() {
  const region = useRef<E>(null);
  const moveFrom = useCallback((event: KeyboardEvent) => {
    const links = [...(region.current?.querySelectorAll<HTMLElement>(LINK) ?? [])];
    const step = STEPS[event.key];
    if (links.length === 0 || step === undefined) return;
    const row = document.activeElement?.closest(ROW);
    const from = links.findIndex((link) => link.closest(ROW) === row);
    const to = from === -1 ? (step > 0 ? 0 : links.length - 1) : from + step;
    links[Math.max(0, Math.min(links.length - 1, to))]?.focus();
    event.preventDefault();
  }, []);
  useLayoutEffect(() => keepStop(region.current));
  useShortcut('j', moveFrom);
  useShortcut('k', moveFrom);
  return {
    region,
    onKeyDown(event: KeyboardEvent) {
      if (event.target instanceof HTMLElement && event.target.closest(ROW) !== null) moveFrom(event);
    },
    onFocusIn: ({ target }: FocusEvent) => roam(region.current, target),
  };
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

/** Focuses the row that leads to this path, or the page if the list no longer has it. */
export function focusRow(list: HTMLElement | null, path: string): void {
  const links = [...(list?.querySelectorAll<HTMLAnchorElement>(LINK) ?? [])];
  const row = links.find(({ pathname }) => pathname.toLowerCase() === path.toLowerCase());
  (row ?? document.getElementById('main'))?.focus();
}

/** The row that was the stop for the Tab key may have left. Then the first one is. */
function keepStop(region: HTMLElement | null): void {
  const links = [...(region?.querySelectorAll<HTMLElement>(LINK) ?? [])];
  const [first] = links;
  if (first !== undefined && links.every(({ tabIndex }) => tabIndex !== 0)) first.tabIndex = 0;
}

/** Only the row that had the focus last is a stop for the Tab key. */
function roam(region: HTMLElement | null, target: EventTarget | null): void {
  if (!(target instanceof HTMLElement) || !target.matches(LINK)) return;
  for (const link of region?.querySelectorAll<HTMLElement>(LINK) ?? [])
    link.tabIndex = link === target ? 0 : -1;
}
