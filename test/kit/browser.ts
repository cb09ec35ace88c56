/**
 * A real browser for tests: Chromium from npm, which needs no installation, or the one that CHROME_PATH names.
 */
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import {
  type Browser,
  type BrowserContext,
  chromium,
  type Page,
  type Response,
  type Route,
} from 'playwright-core';
import { waitUntil } from './wait.ts';

const PACKAGE = new URL(
  '../../tools/checks/node_modules/@sparticuz/chromium/build/index.js',
  import.meta.url,
);
/** The browser is under test with its security. The package's own arguments would switch much of it off. */
const ARGUMENTS = ['--no-sandbox'];

/** Longer than a busy machine needs for anything that a test waits for. */
const WAIT_MS_MAX = 120_000;

/** Where the package unpacks its fonts. */
const fontsFolder = (): string => path.join(tmpdir(), 'fonts');

/** The package's own file names another folder, and a browser that finds no font at all ends. */
const fontsConfiguration = (folder: string): string => `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>${folder}</dir>
  <cachedir>${folder}-cache</cachedir>
</fontconfig>
`;

/** Starts a browser. `fonts` is a folder with a fonts.conf; without it the browser has the fonts of the package. */
export async function startBrowser({ fonts }: { fonts?: string | undefined } = {}): Promise<Browser> {
  const given = process.env.CHROME_PATH;
  const executablePath = given === undefined || given === '' ? await unpack() : given;
  // A context closes with its test, and what it waits for then has no reader.
  return await chromium.launch({
    executablePath,
    args: ARGUMENTS,
    env: { ...process.env, FONTCONFIG_PATH: fonts ?? fontsFolder() },
  });
}

/**
 * Unpacks the browser and its fonts into the run's temporary folder, once. Test files run at the same time, and none may start
 * the program while another one writes it.
 */
async function unpack(): Promise<string> {
  const { default: packed } = (await import(PACKAGE.href)) as {
    default: { executablePath(): Promise<string> };
  };
  const mark = path.join(tmpdir(), 'chainbell-browser');
  const ready = path.join(mark, 'ready');
  const isFirst = await mkdir(mark).then(
    () => true,
    () => false,
  );
  if (isFirst) {
    await packed.executablePath();
    await writeFile(path.join(fontsFolder(), 'fonts.conf'), fontsConfiguration(fontsFolder()));
    await writeFile(ready, '');
  }
  await waitUntil(() => existsSync(ready), { describe: `another process to unpack the browser (${mark})` });
  return packed.executablePath();
}

/**
 * Waits until the expression is true in the page. `waitForFunction` would evaluate the text inside the page from its second
 * look on, which the console's Content-Security-Policy forbids.
 */
export const untilTrue = (page: Page, expression: string): Promise<boolean> =>
  waitUntil(() => page.evaluate<boolean>(`Boolean(${expression})`), { describe: expression });

/** Resolves once the page has handled this answer, which it has when it has handled a later one. */
export async function untilHandled(page: Page, answer: Response): Promise<void> {
  await answer.finished();
  await page.evaluate(`fetch('/livez').then((later) => later.text())`);
}

/** Holds the next answer to a request for such a URL, as it is now. `release` resolves once the page has handled it. */
export async function holdAnswer(
  page: Page,
  url: RegExp,
): Promise<{ held: Promise<void>; release(): Promise<void> }> {
  const [held, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const answer = async (route: Route) => {
    const response = await route.fetch();
    held.resolve();
    await gate.promise;
    await route.fulfill({ response });
  };
  await page.route(url, answer, { times: 1 });
  return {
    held: held.promise,
    async release() {
      const answered = page.waitForResponse(url);
      gate.resolve();
      await untilHandled(page, await answered);
    },
  };
}

/** Hides the tab from its page, or shows it again. */
export const hideTab = (page: Page, isHidden: boolean): Promise<void> =>
  page.evaluate(
    `Object.defineProperty(document, 'hidden', { configurable: true, get: () => ${isHidden} }); document.dispatchEvent(new Event('visibilitychange'));`,
  );

export type View = { theme?: 'light' | 'dark'; width?: number; height?: number; timeZone?: string };

/** A new tab without storage, as another visitor would have. */
export async function openTab(
  browser: Browser,
  { theme = 'light', width = 1440, height = 900, timeZone = 'Europe/Berlin' }: View = {},
): Promise<{ page: Page; context: BrowserContext }> {
  const context = await browser.newContext({
    colorScheme: theme,
    // A color that is on its way has another contrast than where it ends.
    reducedMotion: 'reduce',
    viewport: { width, height },
    locale: 'en-US',
    timezoneId: timeZone,
  });
  context.setDefaultTimeout(WAIT_MS_MAX);
  const page = await context.newPage();
  return { page, context };
}
