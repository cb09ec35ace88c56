/**
 * The screens of the console, as the tests check them and the pictures show them.
 */
import type { Page } from 'playwright-core';

/** A newcomer is a watcher without addresses. */
type Visitor = 'watcher' | 'newcomer' | 'operator' | 'anyone';

/** What stands in the paths of screens about one thing. */
export type ScreenFacts = {
  delivery: number;
  record: string;
  user: string;
  transaction: string;
  origin: string;
};

export type Screen = {
  name: string;
  who: Visitor;
  path(facts: ScreenFacts): string;
  /** A text that is there once the screen's data is. */
  ready: string;
  /** The API refuses what the address names, which the browser logs as an error. */
  isRefused?: true;
  /** Opens what the screen is about, such as a dialog. */
  act?(page: Page): Promise<void>;
};

export const screens: readonly Screen[] = [
  { name: 'sign-in', who: 'anyone', path: () => '', ready: 'No key yet?' },
  { name: 'not-found', who: 'anyone', path: () => '/nowhere', ready: 'No such page' },
  { name: 'unknown-pair', who: 'anyone', path: () => '/market/999', ready: 'All pairs', isRefused: true },
  {
    name: 'unknown-address',
    who: 'watcher',
    path: () => '/addresses/abc',
    ready: 'All addresses',
    isRefused: true,
  },
  {
    name: 'refused',
    who: 'watcher',
    path: () => '/receivers?cursor=zz',
    ready: 'Open the page without parameters',
    isRefused: true,
  },
  { name: 'first-run', who: 'newcomer', path: () => '', ready: 'Watch your first address' },
  { name: 'overview', who: 'watcher', path: () => '', ready: 'Answered 503' },
  { name: 'deliveries', who: 'watcher', path: () => '/deliveries', ready: 'in the log' },
  {
    name: 'deliveries-filtered',
    who: 'watcher',
    path: ({ origin }) => `/deliveries?status=retrying&origin=${encodeURIComponent(origin)}`,
    ready: 'match',
  },
  {
    name: 'delivery',
    who: 'watcher',
    path: ({ delivery }) => `/deliveries/${delivery}`,
    ready: 'Request body',
  },
  { name: 'addresses', who: 'watcher', path: () => '/addresses', ready: 'coin and tokens' },
  { name: 'address', who: 'watcher', path: ({ record }) => `/addresses/${record}`, ready: 'Confirmations' },
  {
    name: 'test-webhook',
    who: 'watcher',
    path: ({ record }) => `/addresses/${record}`,
    ready: 'Confirmations',
    async act(page) {
      await page.getByRole('button', { name: 'Send a test' }).click();
      await page.getByText('Request body').waitFor();
      await page.getByText('Request body').scrollIntoViewIfNeeded();
    },
  },
  {
    name: 'new-address',
    who: 'watcher',
    path: () => '/addresses',
    ready: 'coin and tokens',
    act: (page) => page.getByRole('button', { name: 'New address' }).click(),
  },
  {
    name: 'import',
    who: 'watcher',
    path: () => '/addresses',
    ready: 'coin and tokens',
    act: (page) => page.getByRole('button', { name: 'Import a CSV' }).click(),
  },
  {
    name: 'filters',
    who: 'watcher',
    path: () => '/deliveries',
    ready: 'in the log',
    act: (page) => page.getByRole('button', { name: 'State' }).click(),
  },
  { name: 'receivers', who: 'watcher', path: () => '/receivers', ready: 'Healthy' },
  {
    name: 'receiver',
    who: 'watcher',
    path: ({ origin }) => `/receivers?origin=${encodeURIComponent(origin)}`,
    ready: 'Other receivers are unaffected',
  },
  { name: 'secrets', who: 'watcher', path: () => '/secrets', ready: 'Signs' },
  {
    name: 'help',
    who: 'watcher',
    path: () => '/secrets',
    ready: 'Signs',
    act: (page) => page.keyboard.press('?'),
  },
  { name: 'points', who: 'anyone', path: () => '/points', ready: 'Ranks 1' },
  { name: 'points-user', who: 'anyone', path: ({ user }) => `/points/${user}`, ready: 'Newest awards' },
  { name: 'market', who: 'anyone', path: () => '/market', ready: 'USDT/ETH' },
  { name: 'pair', who: 'anyone', path: () => '/market/2', ready: 'By hour' },
  { name: 'pair-value', who: 'anyone', path: () => '/market/2?show=value', ready: 'By hour' },
  { name: 'supply', who: 'anyone', path: () => '/supply', ready: 'Check it yourself' },
  { name: 'operator', who: 'operator', path: () => '', ready: 'Answered 503' },
  { name: 'watcher-needed', who: 'operator', path: () => '/addresses', ready: 'Choose one' },
  { name: 'system', who: 'operator', path: () => '/system', ready: 'Show the configuration' },
  { name: 'watchers', who: 'operator', path: () => '/watchers', ready: 'Suspend' },
  { name: 'keys', who: 'operator', path: () => '/keys', ready: 'Valid' },
  { name: 'explain', who: 'operator', path: ({ transaction }) => `/explain/${transaction}`, ready: 'Awards' },
];
