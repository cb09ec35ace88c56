/**
 * The bar above every page: search, the chain with its head, the live dot, and the switches.
 */

import type { ComponentChildren } from 'preact';
import { useId, useRef } from 'preact/hooks';
import { useLocation } from 'preact-iso';
import { chain, lastHead, status } from '../api/chain.ts';
import { streamState } from '../api/stream.ts';
import { groupDigits } from '../format/amount.ts';
import { formatAge } from '../format/number.ts';
import { formatInstant } from '../format/time.ts';
import { Bell, Icon } from '../parts/icon.tsx';
import { StreamDot, streamText } from '../parts/live-line.tsx';
import { now } from '../state/clock.ts';
import { isDark, switchTheme, theme, zone } from '../state/preferences.ts';
import { useShortcut } from '../state/shortcuts.ts';
import { texts } from '../texts.ts';

export function Bar({ isIn, onHelp }: { isIn: boolean; onHelp(): void }) {
  const name = chain.state.value.data?.name ?? '';
  const id = chain.state.value.data?.id;
  return (
    <header class="bar">
      <a class="brand only-small" href="/console" aria-label="Chainbell">
        <Bell />
      </a>
      <span class="unless-small">{isIn && <Search />}</span>
      <div class="end">
        <span class="pill unless-small if-room">
          <b>{name}</b>
          {id !== undefined && texts.chainId(id)}
        </span>
        <HeadPill />
        {isIn && streamState.value.kind !== 'off' && (
          <span class="pill unless-small" title={streamText()}>
            <StreamDot />
            {texts.live.short[streamState.value.kind]}
          </span>
        )}
        <span class="tools">
          <button
            type="button"
            class="icon-button is-text"
            title={texts.zoneSwitch}
            aria-label={texts.zoneSwitch}
            onClick={() => {
              zone.value = zone.value === 'utc' ? 'local' : 'utc';
            }}
          >
            {zone.value === 'utc' ? 'UTC' : texts.local}
          </button>
          <button
            type="button"
            class="icon-button unless-small is-text"
            title={texts.help.title}
            aria-label={texts.help.title}
            onClick={onHelp}
          >
            ?
          </button>
          <button
            type="button"
            class="icon-button"
            title={texts.themeSwitch}
            aria-label={texts.themeSwitch}
            onClick={switchTheme}
          >
            <Icon name={theme.value !== undefined && isDark() ? 'sun' : 'moon'} />
          </button>
        </span>
      </div>
    </header>
  );
}

/** Finds an address, a transaction or a delivery by what it looks like. */
export function Search() {
  const input = useRef<HTMLInputElement>(null);
  const { route } = useLocation();
  useShortcut('/', () => input.current?.focus());
  const find = (text: string): string | undefined => {
    const digits = text.replace(/^0x/i, '');
    if (/^[0-9a-fA-F]{64}$/.test(digits)) return `/console/deliveries?hash=0x${digits.toLowerCase()}`;
    if (/^[0-9a-fA-F]{40}$/.test(digits)) return `/console/deliveries?address=0x${digits.toLowerCase()}`;
    if (/^[0-9a-f]{8}-[0-9a-f-]{27}$/i.test(text)) return `/console/addresses/${text.toLowerCase()}`;
    return /^\d{1,15}$/.test(text) ? `/console/deliveries/${text}` : undefined;
  };
  return (
    <search>
      <form
        class="search"
        onSubmit={(event) => {
          event.preventDefault();
          const field = input.current;
          if (field === null) return;
          const target = find(field.value.trim());
          field.setCustomValidity(target === undefined ? texts.searchProblem : '');
          field.reportValidity();
          if (target === undefined) return;
          field.value = '';
          route(target);
          document.getElementById('main')?.focus({ preventScroll: true });
        }}
      >
        <Icon name="search" />
        <input
          ref={input}
          type="search"
          aria-label={texts.searchAll}
          placeholder={texts.searchAll}
          autocomplete="off"
          spellcheck={false}
          onInput={(event) => event.currentTarget.setCustomValidity('')}
          onKeyDown={(event) => {
            if (event.key === 'Escape') event.currentTarget.blur();
          }}
        />
        <kbd>/</kbd>
      </form>
    </search>
  );
}

/** The newest stored block and its age, or since when following holds. */
function HeadPill() {
  const loaded = status.state.value;
  const head = lastHead.value;
  const problem = loaded.data?.problem ?? undefined;
  const since = (at: string) => formatInstant(Date.parse(at), { ms: now.value, zone: zone.value });
  if (head === undefined && problem !== undefined)
    return (
      <ProblemPill isBad message={problem.message}>
        {texts.problemSince(since(problem.since))}
      </ProblemPill>
    );
  if (head === undefined)
    return (
      <span class="pill">
        <span class="dot is-trying" aria-hidden="true" />
        {loaded.data === undefined ? texts.connecting : texts.noBlock}
      </span>
    );
  const number = `#${groupDigits(String(head.number))}`;
  if (problem !== undefined) {
    const isHolding = loaded.data?.state === 'holding';
    return (
      <ProblemPill isBad={isHolding} message={problem.message}>
        {(isHolding ? texts.holds : texts.problemAt)(number, since(problem.since))}
      </ProblemPill>
    );
  }
  const ageMs = Math.max(0, now.value - head.minedAt);
  const isLate = ageMs > 3 * (chain.state.value.data?.block_time_ms ?? 20_000) + 2_000;
  return (
    <span class="pill" title={texts.headTitle}>
      <Icon
        name={isLate || loaded.error !== undefined ? 'retrying' : 'delivered'}
        tone={isLate ? 'is-warn' : 'is-ok'}
      />
      <b class="mono">{number}</b>
      <span class="unless-small">{texts.old(formatAge(ageMs))}</span>
    </span>
  );
}

/** A problem in short. Its reason opens below. */
function ProblemPill({
  isBad,
  message,
  children,
}: {
  isBad: boolean;
  message: string;
  children: ComponentChildren;
}) {
  const id = useId();
  return (
    <>
      <button type="button" class={isBad ? 'pill is-bad' : 'pill'} popovertarget={id}>
        <Icon name="failing" tone={isBad ? 'is-bad' : 'is-warn'} />
        {children}
      </button>
      <p id={id} class="pill-note" popover="auto">
        {message}
      </p>
    </>
  );
}
