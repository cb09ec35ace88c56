/**
 * Where a page is scrolled to. The router scrolls each new address to the top, but a list must keep its place when one of its rows
 * is opened beside it.
 */

/** Screens whose list stays while a detail is open. */
const SPLIT = ['deliveries', 'points'];
const wide = matchMedia('(min-width: 1200px)');

let at = 0;
let listAt = 0;
let former: string[] = [];

/** Called once. */
export function watchPlace(): void {
  former = partsOf(location.pathname);
  addEventListener(
    'scroll',
    () => {
      at = scrollY;
    },
    { passive: true },
  );
}

/** Called when another address is shown. Scroll events come later, so `at` is still the place in the former one. */
export function keepPlace(url: string): void {
  const parts = partsOf(new URL(url, location.origin).pathname);
  const [screen = ''] = parts;
  const isSame = screen === former[0] && SPLIT.includes(screen);
  const opens = isSame && former.length === 1 && parts.length > 1;
  const closes = isSame && former.length > 1 && parts.length === 1;
  former = parts;
  if (opens) listAt = at;
  if (isSame && wide.matches) scrollTo(0, at);
  else if (closes) scrollTo(0, listAt);
}

const partsOf = (path: string): string[] => path.split('/').slice(2).filter(Boolean);
