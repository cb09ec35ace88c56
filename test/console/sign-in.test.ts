/**
 * Signing in and out, in a real browser: which keys open the console, what a refused one learns, and what stays in the browser.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page, Route } from 'playwright-core';
import { expireKey, revokeKey } from '../../src/store/watchers/api-keys.ts';
import { openTab, untilHandled, untilTrue } from '../kit/browser.ts';
import { ADMIN_TOKEN, type ConsoleStage, createConsoleStage } from '../kit/console-stage.ts';
import { createWatcher, freshAddress } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

describe('signing in', () => {
  let stage: ConsoleStage;
  before(async () => {
    stage = await createConsoleStage();
  });
  after(() => stage[Symbol.asyncDispose]());

  async function enter(page: Page, token: string): Promise<void> {
    await page.getByLabel('API key or admin token').fill(token);
    await page.getByRole('button', { name: 'Sign in' }).click();
  }

  test('a link with a key opens signed in, and the key leaves the address bar and the history', async () => {
    const page = await stage.open('', { key: stage.watcher.key });
    await page.getByText(`watcher ${stage.watcher.id}`).waitFor();
    assert.equal(new URL(page.url()).hash, '');
    assert.equal(await page.evaluate('document.cookie'), '');
    assert.equal(await page.evaluate('JSON.stringify({ ...localStorage }).includes("cb_live")'), false);
    await page.goBack();
    assert.ok(!page.url().includes('cb_live'));
  });

  test('the admin token opens the operator’s console, which names every watcher', async () => {
    const page = await stage.open('', { admin: ADMIN_TOKEN });
    const choice = page.getByLabel('Watcher');
    await choice.locator('option', { hasText: 'acme' }).waitFor({ state: 'attached' });
    await page.getByRole('link', { name: 'Keys' }).waitFor();
  });

  test('the operator deletes a watcher only after typing its name, and it is gone with its key', async () => {
    const other = await createWatcher(stage.service, 'parting');
    await other.watch({ address: freshAddress(), webhookUrl: stage.receiver.url });
    const page = await stage.open('/watchers', { admin: ADMIN_TOKEN });
    const choice = page.getByLabel('Watcher', { exact: true });
    await choice.selectOption({ label: 'parting' });
    await page.getByRole('button', { name: 'Delete… parting' }).click();
    const remove = page.getByRole('button', { name: 'Delete', exact: true });
    await page.getByLabel('To confirm, type the name').fill('partin');
    assert.equal(await remove.isDisabled(), true);
    await page.getByLabel('To confirm, type the name').fill('parting');
    await remove.click();
    await page.getByRole('button', { name: 'Delete… parting' }).waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Delete… acme' }).waitFor();
    assert.equal(await choice.inputValue(), '');
    await createWatcher(stage.service, 'unchosen');
    await page.reload();
    await choice.locator('option', { hasText: 'unchosen' }).waitFor({ state: 'attached' });
    await page.getByRole('button', { name: 'Delete… unchosen' }).click();
    await page.getByLabel('To confirm, type the name').fill('unchosen');
    await remove.click();
    await choice.locator('option', { hasText: 'unchosen' }).waitFor({ state: 'detached' });
    await page.setViewportSize({ width: 360, height: 740 });
    await waitUntil(
      async () => {
        const button = await page.getByRole('button', { name: 'Delete… acme' }).boundingBox();
        return button !== null && button.x + button.width <= 360;
      },
      { describe: 'the buttons to fit into a small screen' },
    );
    assert.equal((await other.request('GET')).status, 401);
  });

  test('a name with two blanks is confirmed as a browser shows it', async () => {
    await createWatcher(stage.service, 'two  blanks');
    const page = await stage.open('/watchers', { admin: ADMIN_TOKEN });
    const open = page.getByRole('button', { name: 'Delete… two blanks' });
    await open.click();
    await page.getByLabel('To confirm, type the name: two blanks').fill('two blanks');
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await open.waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Delete… acme' }).waitFor();
    await page.context().close();
  });

  test('the button that resumed a watcher keeps the focus, and a refusal is shown', async () => {
    const { id } = await createWatcher(stage.service, 'resting');
    await fetch(`${stage.service.apiUrl}/api/admin/watchers/${id}/suspend`, {
      method: 'POST',
      headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
    });
    const page = await stage.open('/watchers', { admin: ADMIN_TOKEN });
    const refusal = 'resuming is refused for a test';
    await page.route('**/resume', (route) =>
      route.fulfill({ status: 503, json: { statusMessage: refusal } }),
    );
    const resume = page.getByRole('button', { name: 'Resume resting' });
    await resume.press('Enter');
    await page.getByRole('alert').getByText(refusal).waitFor();
    await page.unroute('**/resume');
    await resume.press('Enter');
    await page.getByRole('button', { name: 'Suspend… resting' }).waitFor();
    await page.getByText(refusal).waitFor({ state: 'detached' });
    assert.equal(await page.evaluate('document.activeElement.textContent'), 'Suspend… resting');
    await page.context().close();
  });

  test('a chosen watcher that is deleted elsewhere is chosen no longer', async () => {
    const { id } = await createWatcher(stage.service, 'elsewhere');
    const page = await stage.open('/deliveries', { admin: ADMIN_TOKEN });
    const choice = page.getByLabel('Watcher', { exact: true });
    await choice.selectOption({ label: 'elsewhere' });
    await page.getByText('No transfers of your addresses yet').waitFor();
    await page.getByTitle('Live', { exact: true }).waitFor();
    await fetch(`${stage.service.apiUrl}/api/admin/watchers/${id}`, {
      method: 'DELETE',
      headers: { authorization: `Bearer ${ADMIN_TOKEN}` },
    });
    await waitUntil(async () => (await choice.inputValue()) === '');
    await page.context().close();
  });

  test('another page than the service’s answer is named, and the key is tried again', async () => {
    const { page, context } = await openTab(stage.browser);
    const login = (route: Route) => route.fulfill({ contentType: 'text/html', body: '<h1>Log in</h1>' });
    await page.route('**/api/notifications/watcher', login);
    await page.goto(`${stage.service.apiUrl}/console/sign-in`);
    await enter(page, stage.watcher.key);
    await page.getByRole('alert').filter({ hasText: 'The answer is not from Chainbell' }).waitFor();
    assert.equal(await page.getByRole('button', { name: 'Sign in' }).isDisabled(), false);
    await page.goto(`${stage.service.apiUrl}/console/deliveries#key=${stage.watcher.key}`);
    await page.getByText('The answer is not from Chainbell').first().waitFor();
    await page.unroute('**/api/notifications/watcher');
    await page.getByText(`watcher ${stage.watcher.id}`).waitFor();

    await page.route(/api\/notifications\/receivers/, login, { times: 1 });
    await page.getByRole('link', { name: 'Receivers', exact: true }).first().click();
    await page.getByText('The answer is not from Chainbell').first().waitFor();
    await page.getByText('The answer is not from Chainbell').first().waitFor({ state: 'detached' });
    await context.close();
  });

  test('a link signs in where the visitor has blocked storage', async () => {
    const { page, context } = await openTab(stage.browser);
    await page.addInitScript(`
      for (const name of ['localStorage', 'sessionStorage'])
        Object.defineProperty(window, name, { get() { throw new DOMException('blocked', 'SecurityError'); } });`);
    await page.goto(`${stage.service.apiUrl}/console/deliveries#key=${stage.watcher.key}`);
    await page.getByText(`watcher ${stage.watcher.id}`).waitFor();
    await context.close();
  });

  test('a key that is unknown, revoked or wrong in its form says so, and the form stays', async () => {
    const page = await stage.open('/deliveries');
    await enter(page, 'two words');
    await page.getByText('A key has no spaces').waitFor();
    await enter(page, 'b'.repeat(40));
    await page.getByText('neither an API key').waitFor();
    await enter(page, `${stage.watcher.key.slice(0, -1)}${stage.watcher.key.endsWith('0') ? '1' : '0'}`);
    await page.getByText('does not know this key').waitFor();
    const other = await createWatcher(stage.service, 'zulu');
    await revokeKey(stage.service.database, other.keyId, new Date());
    await enter(page, other.key);
    await page.getByText('This key was revoked').waitFor();
    const rotated = await createWatcher(stage.service, 'yankee');
    await expireKey(stage.service.database, rotated.keyId, new Date());
    await enter(page, rotated.key);
    await page.getByText('This key has expired').waitFor();
    assert.equal(await page.getByText(/zulu|yankee/).count(), 0);
    assert.equal(await page.evaluate('sessionStorage.length'), 0);
  });

  test('a page that is loaded again before its key has been checked signs in with it', async () => {
    const page = await stage.open('/supply');
    const asked = Promise.withResolvers<void>();
    await page.route('**/api/notifications/watcher', () => asked.resolve(), { times: 1 });
    await page.goto(`${stage.service.apiUrl}/console/addresses#key=${stage.watcher.key}`);
    await asked.promise;
    assert.equal(await page.evaluate('location.hash'), '');
    await page.reload();
    await page.getByRole('button', { name: 'Sign out' }).waitFor();
    await untilTrue(page, 'sessionStorage.length === 1');
  });

  test('a key that is revoked while its page is open signs out, and says why', async () => {
    const other = await createWatcher(stage.service, 'leaving');
    const page = await stage.open('/addresses', { key: other.key });
    await page.getByText('You watch no addresses yet').waitFor();
    await revokeKey(stage.service.database, other.keyId, new Date());
    await page.getByRole('link', { name: 'Receivers' }).click();
    await page.getByText('This key was revoked').waitFor();
    assert.equal(await page.evaluate('sessionStorage.length'), 0);
  });

  test('another tab is not signed in, and signing out forgets the key and everything shown', async () => {
    await stage.watcher.watch({ address: freshAddress(), webhookUrl: stage.receiver.url });
    const page = await stage.open('/addresses', { key: stage.watcher.key });
    await page.getByText(stage.receiver.url).first().waitFor();
    const second = await page.context().newPage();
    await second.goto(`${stage.service.apiUrl}/console/addresses`);
    await second.getByLabel('API key or admin token').waitFor();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('API key or admin token').waitFor();
    assert.equal(await page.evaluate('sessionStorage.length'), 0);
    assert.equal(await page.getByText(stage.receiver.url).count(), 0);
  });

  test('the answer to an older link signs nobody in, neither over a newer link nor after signing out', async () => {
    const page = await stage.open('', { key: stage.watcher.key });
    await page.getByText(`watcher ${stage.watcher.id}`).waitFor();
    const held: (() => void)[] = [];
    await page.route('**/api/admin/deployment', async (route) => {
      await new Promise<void>((resolve) => held.push(resolve));
      await route.continue();
    });
    const openLink = (fragment: string) =>
      page.evaluate(`void (location.hash = ${JSON.stringify(fragment)})`);
    const stored = () => page.evaluate<string | null>(`sessionStorage.getItem('chainbell.session')`);
    const answerLate = async () => {
      await waitUntil(() => held.length > 0);
      const answered = page.waitForResponse('**/api/admin/deployment');
      held.shift()?.();
      await untilHandled(page, await answered);
    };
    await openLink(`#admin=${ADMIN_TOKEN}`);
    const other = await createWatcher(stage.service, 'newer');
    await openLink(`#key=${other.key}`);
    await page.getByText(`watcher ${other.id}`).waitFor();
    await answerLate();
    assert.match((await stored()) ?? '', /"kind":"watcher"/);
    await openLink(`#admin=${ADMIN_TOKEN}`);
    await waitUntil(() => held.length > 0);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await answerLate();
    assert.equal(await stored(), null);
    await page.context().close();
  });

  test('a link whose key is refused says so to who is signed in, who stays so', async () => {
    const page = await stage.open('/supply', { key: stage.watcher.key });
    await page.getByText(`watcher ${stage.watcher.id}`).waitFor();
    await page.goto(`${stage.service.apiUrl}/console/supply#key=cb_live_unknown`);
    const strip = page.getByRole('status').filter({ hasText: 'The key of the link was refused' });
    await strip.waitFor();
    await page.getByText(`watcher ${stage.watcher.id}`).waitFor();
    await page.reload();
    await page.getByText(`watcher ${stage.watcher.id}`).waitFor();
    assert.equal(await strip.count(), 0);
    await page.evaluate(`void (location.hash = '#admin=wrong')`);
    await strip.getByRole('button', { name: 'Close' }).click();
    await strip.waitFor({ state: 'detached' });
    await page.context().close();
  });

  test('a link that comes while the key of an older one is being checked leaves the address bar, and signs in', async () => {
    const other = await createWatcher(stage.service, 'sooner');
    const page = await stage.open('/supply');
    const asked = Promise.withResolvers<void>();
    await page.route('**/api/notifications/watcher', () => asked.resolve(), { times: 1 });
    await page.goto('about:blank');
    await page.goto(`${stage.service.apiUrl}/console/supply#key=${stage.watcher.key}`);
    await asked.promise;
    await page.evaluate(`void (location.hash = ${JSON.stringify(`#key=${other.key}`)})`);
    await untilTrue(page, `location.hash === ''`);
    await page.getByText(`watcher ${other.id}`).waitFor();
    await page.context().close();
  });

  test('of two links that can’t be checked now, the newer one signs in, and who is signed in learns why not yet', async () => {
    const [first, newer] = [
      await createWatcher(stage.service, 'one'),
      await createWatcher(stage.service, 'two'),
    ];
    const page = await stage.open('/supply', { key: stage.watcher.key });
    await page.getByText(`watcher ${stage.watcher.id}`).waitFor();
    let isAway = true;
    const asked: string[] = [];
    await page.route('**/api/notifications/watcher', async (route) => {
      asked.push(route.request().headers().authorization?.slice('Bearer '.length) ?? '');
      if (isAway) await route.fulfill({ status: 503, body: '{"statusMessage":"unavailable"}' });
      else await route.continue();
    });
    for (const { key } of [first, newer]) {
      await page.evaluate(`void (location.hash = ${JSON.stringify(`#key=${key}`)})`);
      await waitUntil(() => asked.includes(key));
    }
    await page.getByText('The key of the link can’t be checked now').waitFor();
    await waitUntil(() => asked.filter((key) => key === newer.key).length > 2);
    isAway = false;
    await page.getByText(`watcher ${newer.id}`).waitFor();
    assert.equal(await page.getByText('The key of the link').count(), 0);
    assert.equal(asked.filter((key) => key === first.key).length, 1);
    await page.context().close();
  });

  test('a link whose key can’t be checked now signs in as soon as it can', async () => {
    const page = await stage.open('/supply');
    let answers = 0;
    await page.route('**/api/notifications/watcher', async (route) => {
      answers += 1;
      if (answers > 1) await route.continue();
      else await route.fulfill({ status: 503, body: '{"statusMessage":"unavailable"}' });
    });
    await page.evaluate(`void (location.hash = ${JSON.stringify(`#key=${stage.watcher.key}`)})`);
    await page.getByText(`watcher ${stage.watcher.id}`).waitFor();
    assert.equal(answers, 2);
    await page.context().close();
  });

  test('while the database is away, the operator’s link shows that instead of the form, and then signs in', async () => {
    const page = await stage.open('/supply');
    const problem = { message: 'database: no connection', since: new Date().toISOString() };
    const held = Promise.withResolvers<void>();
    let isAway = true;
    await page.route(/\/status$/, async (route) => {
      const answer = Object(await (await route.fetch()).json());
      await route.fulfill({ json: isAway ? { ...answer, cursor: null, problem } : answer });
    });
    await page.route('**/api/admin/deployment', async (route) => {
      await held.promise;
      if (isAway) await route.fulfill({ status: 503, body: '{"statusMessage":"Service Unavailable"}' });
      else await route.continue();
    });
    await page.goto('about:blank');
    await page.goto(`${stage.service.apiUrl}/console/system#admin=${ADMIN_TOKEN}`);
    await page.getByText('Chainbell takes long to answer').waitFor();
    held.resolve();
    await page.getByText('It reports: database: no connection').waitFor();
    await page.getByText('This page tries again').waitFor();
    assert.equal(await page.getByLabel('API key or admin token').count(), 0);
    assert.equal(await page.locator('.strip').count(), 0);
    await page.getByRole('link', { name: 'Sign in with another key' }).click();
    await page.getByLabel('API key or admin token').waitFor();
    await page.goBack();
    isAway = false;
    await page.getByRole('heading', { name: 'System' }).waitFor();
    // What its routes still ask for has no reader then.
    await page.unrouteAll({ behavior: 'ignoreErrors' });
    await page.context().close();
  });

  test('a link with a broken fragment or a broken filter shows a page', async () => {
    const broken = await stage.open('#key=%E0%A4%A');
    await broken.getByLabel('API key or admin token').waitFor();
    await broken.context().close();
    const page = await stage.open('/deliveries?from=x', { key: stage.watcher.key });
    await page.getByRole('alert').first().waitFor();
    await page.getByRole('link', { name: 'Receivers' }).first().click();
    await page.getByRole('heading', { name: 'Receivers' }).waitFor();
    await page.context().close();
  });

  test('a new key stays on the screen until it is closed, and Esc doesn’t close it', async () => {
    const page = await stage.open('/keys', { admin: ADMIN_TOKEN });
    await page.getByRole('button', { name: 'New key…' }).click();
    await page.getByRole('dialog').getByLabel('Watcher').fill('kept');
    await page.keyboard.press('Enter');
    await page.getByText(/^cb_live_/).waitFor();
    // The event of the closed dialog comes with one of the next frames.
    await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))');
    await page.getByText(/^cb_live_/).waitFor();
    for (let count = 0; count < 3; count += 1) await page.keyboard.press('Escape');
    await page.getByText(/^cb_live_/).waitFor();
    await page.getByRole('button', { name: 'I have copied it' }).click();
    await page.getByRole('row', { name: /kept/ }).waitFor();
    assert.notEqual(await page.evaluate('document.activeElement.tagName'), 'BODY');
    await page.context().close();
  });

  test('a watcher at a page for the operator learns which token it needs, and can sign in with it', async () => {
    const page = await stage.open('', { key: stage.watcher.key });
    await page.getByText(`watcher ${stage.watcher.id}`).waitFor();
    for (const path of ['system', 'watchers', `explain/0x${'1'.repeat(64)}`, 'keys']) {
      await page.goto(`${stage.service.apiUrl}/console/${path}`);
      await page.getByRole('heading', { name: 'For the operator' }).waitFor();
      await page
        .getByText('You are signed in as acme. To open this page, sign in with the admin token.')
        .waitFor();
      assert.equal(await page.getByText('No key yet?').count(), 0);
    }
    await enter(page, ADMIN_TOKEN);
    await page.getByRole('heading', { name: 'Keys' }).waitFor();
    await page.context().close();
  });

  test('an address that matches nothing says so and leads back', async () => {
    const page = await stage.open('/no/such/page');
    await page.getByRole('heading', { name: 'No such page' }).waitFor();
    await page.getByRole('link', { name: 'Go to the overview' }).click();
    await page.getByLabel('API key or admin token').waitFor();
  });
});
