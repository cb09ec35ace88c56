/**
 * Signing in and out, in a real browser: which keys open the console, what a refused one learns, and what stays in the browser.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { expireKey, revokeKey } from '../../src/store/watchers/api-keys.ts';
import { ADMIN_TOKEN, type ConsoleStage, createConsoleStage } from '../kit/console-stage.ts';
import { createWatcher, freshAddress } from '../kit/service.ts';

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
    assert.equal((await other.request('GET')).status, 401);
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

  test('an address that matches nothing says so and leads back', async () => {
    const page = await stage.open('/no/such/page');
    await page.getByRole('heading', { name: 'No such page' }).waitFor();
    await page.getByRole('link', { name: 'Go to the overview' }).click();
    await page.getByLabel('API key or admin token').waitFor();
  });
});
