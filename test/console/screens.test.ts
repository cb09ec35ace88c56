/**
 * Every screen with the demo's data: for everyone who uses it, in both themes and on a small screen, and within the page's policy.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, describe, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { startBrowser } from '../kit/browser.ts';
import { type ConsoleDemo, startConsoleDemo } from '../kit/console-demo.ts';
import { screens } from '../kit/console-screens.ts';
import { buildConsole } from '../kit/console-stage.ts';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const SMALL = 360;

const WIDE_TABLES = `[...document.querySelectorAll('.table')].filter((one) => one.scrollWidth > one.clientWidth)
  .map((one) => one.querySelector('caption').textContent + ': ' + one.scrollWidth + ' px in ' + one.clientWidth)`;

type Violation = { id: string; nodes: { html: string }[] };

describe('each screen', () => {
  let browser: Browser;
  let demo: ConsoleDemo;
  const own = new AsyncDisposableStack();
  before(async () => {
    await buildConsole();
    demo = own.use(await startConsoleDemo());
    browser = await startBrowser();
    own.defer(() => browser.close());
  });
  after(() => own.disposeAsync());

  for (const screen of screens) {
    test(`${screen.name} has no axe fault in either theme, nothing inline, fits into ${SMALL} px, and asks no other host`, async () => {
      const hosts = new Set<string>();
      const errors: string[] = [];
      const page = await demo.show(browser, screen, (one) => {
        one.on('request', (request) => hosts.add(new URL(request.url()).host));
        one.on('pageerror', (error) => errors.push(String(error)));
        one.on('console', (message) => {
          const isRefusal = screen.isRefused === true && message.location().url.includes('/api/');
          if (message.type() === 'error' && !isRefusal) errors.push(message.text());
        });
      });
      try {
        const inline = `document.querySelectorAll('[style], style, script:not([src]), [onclick]').length`;
        assert.equal(await page.evaluate(inline), 0);
        assert.deepEqual(await findViolations(page, 'light'), []);
        assert.deepEqual(await findViolations(page, 'dark'), []);
        await page.setViewportSize({ width: SMALL, height: 740 });
        assert.equal(await page.evaluate('document.documentElement.scrollWidth'), SMALL);
        assert.deepEqual(await page.evaluate(WIDE_TABLES), [], 'tables that are wider than the screen');
        assert.deepEqual([...hosts], [new URL(page.url()).host]);
        assert.deepEqual(errors, []);
      } finally {
        await page.context().close();
      }
    });
  }
});

/**
 * What axe finds, in short. Only the rules about colors depend on the theme, so the others run once. It runs outside of the page's
 * policy, as an extension of the browser would.
 */
async function findViolations(page: Page, theme: 'light' | 'dark'): Promise<string[]> {
  await page.emulateMedia({ colorScheme: theme });
  await page.evaluate(AXE);
  const rules = theme === 'light' ? '' : `{ runOnly: ['color-contrast', 'link-in-text-block'] }`;
  const { violations } = await page.evaluate<{ violations: Violation[] }>(`axe.run(${rules})`);
  return violations.map(({ id, nodes }) => {
    const places = nodes.map(({ html }) => html).slice(0, 3);
    return `${theme}: ${id}: ${places.join(' | ')}`;
  });
}
