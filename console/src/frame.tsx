/**
 * The frame around every page: the rail with the screens, the bar with search, head and live dot, and the tab bar of small
 * screens.
 */
import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { useLocation } from 'preact-iso';
import { status } from './api/chain.ts';
import { unreachableSince } from './api/client.ts';
import { formatAge } from './format/number.ts';
import { formatInstant } from './format/time.ts';
import { Icon } from './parts/icon.tsx';
import { type Entry, openEntries, own, Rail } from './screens/rail.tsx';
import { Bar } from './screens/top-bar.tsx';
import { announcement } from './state/announce.ts';
import { now } from './state/clock.ts';
import { isOutdated, onDemand } from './state/lazy.ts';
import { switchTheme, zone } from './state/preferences.ts';
import { isProblemShown } from './state/problem-shown.ts';
import { forgetArrived, linkProblem, session, suspension } from './state/session.ts';
import { useShortcut } from './state/shortcuts.ts';
import { texts } from './texts.ts';

const Help = onDemand(() => import('./screens/help.tsx').then((module) => module.Help));

export function Frame({ children }: { children: ComponentChildren }) {
  const isIn = session.value.kind !== 'visitor';
  const main = useRef<HTMLElement>(null);
  const { path } = useLocation();
  useFocusOnNewPage(main, path);
  const [hasHelp, setHelp] = useState(false);
  useShortcut('?', () => setHelp(true));
  // Its file may still be on its way. Once it is open, the browser closes it on Escape.
  useShortcut('Escape', hasHelp ? () => setHelp(false) : undefined);
  useShortcut('t', switchTheme);
  return (
    <>
      <button type="button" class="skip button" onClick={() => main.current?.focus()}>
        {texts.skip}
      </button>
      {/* Before the page, which would be one pixel higher than the window with it below. */}
      <div class="hidden" role="status">
        {announcement.value}
      </div>
      <div class="app">
        <Rail isIn={isIn} />
        <div>
          <Bar isIn={isIn} onHelp={() => setHelp(true)} />
          <Strip />
          <main id="main" tabIndex={-1} ref={main}>
            {children}
          </main>
        </div>
        <Tabs isIn={isIn} />
      </div>
      {hasHelp && <Help onClose={() => setHelp(false)} />}
    </>
  );
}

/** Screen readers start to read at the page, not at the link that led to it. */
function useFocusOnNewPage(main: { current: HTMLElement | null }, path: string): void {
  const former = useRef(path);
  useEffect(() => {
    const screenOf = (one: string) => one.split('/')[2] ?? '';
    if (screenOf(former.current) !== screenOf(path)) main.current?.focus({ preventScroll: true });
    former.current = path;
  }, [main, path]);
}

/**
 * Says that the server doesn't answer, holds or can't read its data, since when, and that the page goes on by itself, or why it
 * refuses the session.
 */
function Strip() {
  const since = unreachableSince.value;
  const { cursor, state, problem } = status.state.value.data ?? {};
  const timeOf = (ms: number) => formatInstant(ms, { ms: now.value, zone: zone.value });
  if (isOutdated.value)
    return <StripLine text={texts.outdated} button={texts.reload} onPress={() => location.reload()} />;
  if (since !== undefined)
    return <StripLine text={texts.unreachable(timeOf(since), formatAge(now.value - since))} />;
  if ((cursor === null || state === 'holding') && problem != null && !isProblemShown.value)
    return <StripLine text={texts.unavailable(problem.message, timeOf(Date.parse(problem.since)))} />;
  if (linkProblem.value !== undefined) {
    const giveUp = () => {
      linkProblem.value = undefined;
      forgetArrived();
    };
    return <StripLine text={linkProblem.value} button={texts.close} onPress={giveUp} />;
  }
  return suspension.value === undefined ? null : <StripLine text={suspension.value} />;
}

function StripLine({ text, button, onPress }: { text: string; button?: string; onPress?(): void }) {
  return (
    <div class="strip" role="status">
      <Icon name="alert" />
      <span>{text}</span>
      {button !== undefined && (
        <button type="button" class="button is-small" onClick={onPress}>
          {button}
        </button>
      )}
    </div>
  );
}

function Tabs({ isIn }: { isIn: boolean }) {
  const { path } = useLocation();
  const entries: Entry[] = isIn ? [...own] : openEntries();
  const more: Entry = { icon: 'menu', href: '/console/more', name: texts.screens.more };
  return (
    <nav class="tabs" aria-label={texts.mainMenu}>
      {[
        ...entries,
        isIn ? more : { icon: 'secrets' as const, href: '/console/sign-in', name: texts.signIn.submit },
      ].map(({ icon, href, name }) => (
        <a
          key={href}
          href={href}
          aria-current={
            (href === '/console' ? /^\/console\/?$/.test(path) : path.startsWith(href)) ? 'page' : undefined
          }
        >
          <Icon name={icon} />
          {name}
        </a>
      ))}
    </nav>
  );
}
