/**
 * The visitor's choices, kept in this browser: theme, time zone, and whether single keys are shortcuts.
 */
import { effect, type Signal, signal } from '@preact/signals';
import type { Zone } from '../format/time.ts';
import { storeOf } from './storage.ts';

type Theme = 'system' | 'light' | 'dark';

const browserStore = storeOf(() => localStorage);
const stored = (name: string): string | null => browserStore.getItem(`chainbell.${name}`);

export const theme: Signal<Theme> = signal(oneOf(['system', 'light', 'dark'], stored('theme')));
export const zone: Signal<Zone> = signal(oneOf(['utc', 'local'], stored('zone')));
/** WCAG 2.1.4: shortcuts of a single key can be switched off. */
export const hasShortcuts: Signal<boolean> = signal(stored('shortcuts') !== 'off');

const prefersDark = matchMedia('(prefers-color-scheme: dark)');

/** Keeps the choices, and applies the theme to the document. */
export function applyPreferences(): void {
  effect(() => {
    if (theme.value === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme.value;
    browserStore.setItem('chainbell.theme', theme.value);
  });
  effect(() => browserStore.setItem('chainbell.zone', zone.value));
  effect(() => browserStore.setItem('chainbell.shortcuts', hasShortcuts.value ? 'on' : 'off'));
}

/** Switches to the other theme than the one on the screen. */
export function switchTheme(): void {
  theme.value = isDark() ? 'light' : 'dark';
}

export const isDark = (): boolean =>
  theme.value === 'dark' || (theme.value === 'system' && prefersDark.matches);

function oneOf<T extends string>(known: readonly [T, ...T[]], value: string | null): T {
  return known.find((one) => one === value) ?? known[0];
}
