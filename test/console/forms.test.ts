/**
 * Forms in a real browser: what they refuse before a request, and an import that breaks off.
 */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { expireKey } from '../../src/store/watchers/api-keys.ts';
import { holdAnswer, untilTrue } from '../kit/browser.ts';
import { ADMIN_TOKEN, type ConsoleStage, createConsoleStage } from '../kit/console-stage.ts';
import { createWatcher, freshAddress } from '../kit/service.ts';

const DAY_MS = 86_400_000;

describe('forms', () => {
  let stage: ConsoleStage;
  before(async () => {
    stage = await createConsoleStage();
  });
  after(() => stage[Symbol.asyncDispose]());

  test('settings with an empty number or a wrong token say what is wrong, and are not sent', async () => {
    const { key, watch, request } = await createWatcher(stage.service, 'settings');
    const record = await watch({ address: freshAddress(), webhookUrl: stage.receiver.url });
    const page = await stage.open(`/addresses/${record.id}`, { key });
    const sent: string[] = [];
    page.on('request', (one) => one.method() === 'PUT' && sent.push(one.url()));
    const confirmations = page.getByLabel('Confirmations');
    const save = page.getByRole('button', { name: 'Save' });
    await confirmations.fill('');
    await page.getByText('Enter a whole number.').waitFor();
    assert.equal(await save.isDisabled(), true);
    await confirmations.fill('5');
    const minimum = page.getByLabel('Least native amount');
    await minimum.fill('0,5');
    const hint = page.getByRole('alert').filter({ hasText: 'with at most 18 decimals after a point' });
    await hint.waitFor();
    assert.equal(await page.getByText('smallest units').count(), 0);
    assert.equal(await save.isDisabled(), true);
    await minimum.fill('');
    await hint.waitFor({ state: 'detached' });
    const token = freshAddress();
    for (const [line, shown] of [
      ['0x12 1.5', '“0x12 1.5” is not the address of a contract'],
      [`${token} 1e3`, `“${token} 1e3” is not`],
      [`${token} 1 2`, `“${token} 1 2” is not`],
    ] as const) {
      await page.getByLabel('Tokens').fill(`\n${token}\n${line}`);
      await page.getByText(shown).waitFor();
      assert.equal(await save.isDisabled(), true);
    }
    await confirmations.press('Enter');
    await page.getByLabel('Tokens').fill(`${token} 1500`);
    const short = `${token.slice(0, 6)}…${token.slice(-4)}`;
    await page
      .getByText(
        `doesn’t know the decimals of ${short}. Write least amounts of such tokens in smallest units`,
      )
      .waitFor();
    let refusals = 1;
    await page.route('**/settings', (route) => {
      if (route.request().method() !== 'PUT' || refusals === 0) return route.fallback();
      refusals -= 1;
      return route.fulfill({ status: 400, json: { statusMessage: 'Refused' } });
    });
    await save.click();
    const refused = page.getByRole('alert').filter({ hasText: 'Refused' });
    await refused.waitFor();
    await confirmations.fill('6');
    await refused.waitFor({ state: 'detached' });
    await confirmations.fill('5');
    const answered = page.waitForResponse((answer) => answer.request().method() === 'PUT');
    await save.click();
    await answered;
    const { data } = Object(await (await request('GET', `/${record.id}/settings`)).json());
    assert.deepEqual([data.confirmations, data.tokens], [5, [{ address: token, min_amount: '1500' }]]);
    assert.equal(sent.length, 2);
    await untilTrue(page, `document.activeElement.id === 'settings'`);
    await page.context().close();
  });

  test('a known token of the settings counts whole tokens, with its prefix or without', async () => {
    const { key, watch, request } = await createWatcher(stage.service, 'known token');
    const record = await watch({ address: freshAddress(), webhookUrl: stage.receiver.url });
    const page = await stage.open('/receivers', { key });
    const token = freshAddress();
    await page.route('**/api/chain', async (route) => {
      const response = await route.fetch();
      const tokens = [{ address: token, symbol: 'USDT', decimals: 6 }];
      await route.fulfill({ response, json: { ...Object(await response.json()), tokens } });
    });
    await page.goto(`${stage.service.apiUrl}/console/addresses/${record.id}`);
    await page.getByLabel('Tokens').fill(`${token.slice(2)} 1.5`);
    assert.equal(await page.getByText('doesn’t know the decimals').count(), 0);
    const answered = page.waitForResponse((answer) => answer.request().method() === 'PUT');
    await page.getByRole('button', { name: 'Save' }).click();
    await answered;
    const { data } = Object(await (await request('GET', `/${record.id}/settings`)).json());
    assert.deepEqual(data.tokens, [{ address: token, min_amount: '1500000' }]);
    await page.context().close();
  });

  test('settings wait for the decimals of their amounts', async () => {
    const { key, watch, request } = await createWatcher(stage.service, 'decimals');
    const record = await watch({ address: freshAddress(), webhookUrl: stage.receiver.url });
    const body = { min_amount: '1500000000000000000' };
    await request('PUT', `/${record.id}/settings`, body);
    const page = await stage.open('/receivers', { key });
    const known = Promise.withResolvers<void>();
    await page.route('**/api/chain', async (route) => {
      await known.promise;
      await route.continue();
    });
    const settings = page.waitForResponse(/\/settings$/);
    await page.goto(`${stage.service.apiUrl}/console/addresses/${record.id}`);
    await page.getByRole('heading', { name: 'Settings' }).waitFor();
    await settings;
    assert.equal(await page.getByLabel('Confirmations').count(), 0);
    known.resolve();
    await page.getByLabel('Confirmations').waitFor();
    assert.equal(await page.getByLabel('Least native amount').inputValue(), '1.5');
    await page.context().close();
  });

  test('the reason why an address was refused goes when its field is changed', async () => {
    const { key } = await createWatcher(stage.service, 'correcting');
    const page = await stage.open('/addresses', { key });
    await page.getByRole('button', { name: 'New address' }).first().click();
    const dialog = page.getByRole('dialog');
    await dialog.getByLabel('Address').fill('0x12');
    await dialog.getByLabel('Webhook URL').fill(stage.receiver.url);
    await dialog.getByRole('button', { name: 'Watch' }).click();
    await dialog.getByRole('alert').waitFor();
    await dialog.getByLabel('Address').fill(freshAddress());
    await dialog.getByRole('alert').waitFor({ state: 'detached' });
    await page.context().close();
  });

  test('an import ends when its page is left', async () => {
    const { key } = await createWatcher(stage.service, 'leaving');
    const page = await stage.open('/receivers', { key });
    await page.getByRole('link', { name: 'Addresses', exact: true }).first().click();
    await page.getByRole('button', { name: 'Import a CSV' }).click();
    await page.getByLabel('Or paste lines').fill(`${freshAddress()},${stage.receiver.url}`);
    const asked = Promise.withResolvers<void>();
    await page.route('**/bulk', () => asked.resolve());
    await page.getByRole('button', { name: 'Import 1' }).click();
    await asked.promise;
    const ended = page.waitForEvent('requestfailed', (one) => one.url().endsWith('/bulk'));
    await page.goBack();
    await ended;
    await page.context().close();
  });

  test('an import whose answer broke off goes on where it was, and stores each line once', async () => {
    const { key, request } = await createWatcher(stage.service, 'importing');
    const [first, refused, last] = [freshAddress(), freshAddress(), freshAddress()];
    const page = await stage.open('/addresses', { key });
    const keys: (string | undefined)[] = [];
    page.on('request', (one) => {
      if (one.url().endsWith('/bulk')) keys.push(one.headers()['idempotency-key']);
    });
    await page.getByRole('button', { name: 'Import a CSV' }).click();
    const { url } = stage.receiver;
    const lines = `${first},${url}\n${refused},https://hooks.internal/\n${last},${url}`;
    await page.getByLabel('Or paste lines').fill(lines);
    // The service takes all lines, and a proxy loses all answers, then all but the first.
    await page.route('**/bulk', async (route) => {
      const response = await route.fetch();
      const [line] = (await response.text()).split('\n');
      if (keys.length === 1) await route.abort();
      else if (keys.length === 2) await route.fulfill({ response, body: `${line}\n` });
      else await route.fulfill({ response });
    });
    await page.getByRole('button', { name: 'Import 3' }).click();
    const resend = page.getByRole('button', { name: 'Send the rest again' });
    for (const shown of [
      '3 lines have no answer, from line 1 on',
      '2 lines have no answer, from line 2 on',
    ]) {
      await page.getByText(shown).waitFor();
      await page.getByText('Chainbell does not answer').waitFor();
      await resend.click();
    }
    await page.getByText('2 addresses are watched, 1 line was refused').waitFor();
    await page.getByRole('row', { name: refused }).waitFor();
    await resend.waitFor({ state: 'detached' });
    assert.equal(keys.length, 3);
    assert.equal(new Set(keys).size, 1);
    const { data } = Object(await (await request('GET')).json()) as { data: { address: string }[] };
    assert.deepEqual(data.map(({ address }) => address).sort(), [first, last].sort());
    await page.context().close();
  });

  test('the report of an import is imported again once its lines are corrected', async () => {
    const { key, request } = await createWatcher(stage.service, 'reporting');
    const page = await stage.open('/addresses', { key });
    const [first, second] = [freshAddress(), freshAddress()];
    const dialog = page.getByRole('dialog');
    const paste = async (lines: string) => {
      await page.getByRole('button', { name: 'Import a CSV' }).click();
      await dialog.getByText('A line that you import again is watched twice').waitFor();
      await dialog.getByLabel('Or paste lines').fill(lines);
    };
    await paste(`${first},${stage.receiver.url}\n${second},https://hooks.internal/,,false\n0x12`);
    await page.getByRole('button', { name: 'Import 2' }).click();
    await dialog.getByText('1 address is watched, 2 lines were refused').waitFor();
    await dialog.getByText('correct them in the report and import it').waitFor();
    await page.evaluate('navigator.clipboard.writeText = async (text) => { window.copied = text; }');
    await dialog.getByRole('button', { name: 'Copy the report' }).click();
    await untilTrue(page, 'window.copied');
    const report = await page.evaluate<string>('window.copied');
    await dialog.getByRole('button', { name: 'Close', exact: true }).last().click();
    await paste(report);
    await dialog.getByText('1 line can be sent, 1 can’t').waitFor();
    await dialog
      .getByLabel('Or paste lines')
      .fill(report.replace('https://hooks.internal/', stage.receiver.url));
    await page.getByRole('button', { name: 'Import 1' }).click();
    await dialog.getByText('1 address is watched, 1 line was refused').waitFor();
    const { data } = Object(await (await request('GET')).json()) as { data: Record<string, unknown>[] };
    assert.deepEqual(Object.fromEntries(data.map(({ address, watch_token }) => [address, watch_token])), {
      [first]: true,
      [second]: false,
    });
    await page.context().close();
  });

  test('a double click issues one key and rotates once', async () => {
    const { key } = await createWatcher(stage.service, 'double');
    for (const { path, as, open, send, shown } of [
      {
        ...{ path: '/keys', as: { admin: ADMIN_TOKEN }, open: 'New key…', send: 'Issue' },
        shown: 'It is shown only this once',
      },
      {
        ...{ path: '/keys', as: { admin: ADMIN_TOKEN }, open: /^Rotate…/, send: 'Rotate' },
        shown: 'It is shown only this once',
      },
      { path: '/secrets', as: { key }, open: /^Rotate/, send: 'Rotate', shown: undefined },
    ]) {
      const page = await stage.open(path, as);
      await page.getByRole('button', { name: open }).first().click();
      const dialog = page.getByRole('dialog');
      if (open === 'New key…') await dialog.getByLabel('Watcher').fill('double');
      const clicked = Promise.withResolvers<void>();
      let sent = 0;
      page.on('request', (one) => {
        if (one.method() === 'POST') sent += 1;
      });
      await page.route(/\/api\//, async (route) => {
        if (route.request().method() === 'POST') await clicked.promise;
        await route.fallback();
      });
      await dialog.getByRole('button', { name: send, exact: true }).dblclick();
      clicked.resolve();
      if (shown === undefined) await dialog.waitFor({ state: 'detached' });
      else await dialog.getByText(shown).waitFor();
      assert.equal(sent, 1, String(open));
      await page.context().close();
    }
  });

  test('a dialog that asks for a new key stays open until the key is shown', async () => {
    await createWatcher(stage.service, 'patient');
    for (const { open, send } of [
      { open: 'New key…', send: 'Issue' },
      { open: /^Rotate…/, send: 'Rotate' },
    ]) {
      const page = await stage.open('/keys', { admin: ADMIN_TOKEN });
      await page.getByRole('button', { name: open }).first().click();
      const dialog = page.getByRole('dialog');
      if (send === 'Issue') await dialog.getByLabel('Watcher').fill('patient');
      const answer = await holdAnswer(page, /\/api\/admin\/keys(\/\w+\/rotate)?$/);
      await dialog.getByRole('button', { name: send, exact: true }).click();
      await answer.held;
      for (const press of ['first', 'second']) {
        await page.keyboard.press('Escape');
        assert.equal(await dialog.isVisible(), true, `${send}, ${press}`);
      }
      await dialog.getByRole('button', { name: 'Cancel' }).click();
      await dialog.getByRole('button', { name: 'Close' }).click();
      await answer.release();
      await dialog.getByText('It is shown only this once').waitFor();
      await dialog
        .locator('code')
        .filter({ hasText: /\S{20}/ })
        .waitFor();
      await page.context().close();
    }
  });

  test('a time with a year of five digits is refused with a reason', async () => {
    const page = await stage.open('/deliveries', { key: stage.watcher.key });
    await page.getByRole('button', { name: 'More' }).first().click();
    await page.getByLabel('Since').fill('12026-01-01T00:00');
    await page.getByRole('button', { name: 'Show' }).click();
    await page.getByText('Enter a date with a year of four digits').waitFor();
    await page.context().close();
  });

  test('a filter that only the service can refuse keeps its dialog, with the reason at the field', async () => {
    const page = await stage.open('/deliveries', { key: stage.watcher.key });
    const dialog = page.getByRole('dialog');
    const show = dialog.getByRole('button', { name: 'Show' });
    await page.getByRole('button', { name: 'More' }).first().click();
    for (const [name, id, wrong, reason, right] of [
      ['Answer', 'code', 'slow', 'This must be an HTTP status or one of success', '503'],
      ['Receiver', 'origin', 'hooks', 'This must be scheme, host and port of', 'https://hooks.example'],
    ] as const) {
      const field = dialog.getByLabel(name, { exact: true });
      await field.fill(wrong);
      await show.click();
      await dialog.getByRole('alert').filter({ hasText: reason }).waitFor();
      assert.equal(await field.inputValue(), wrong);
      assert.equal(await page.evaluate('document.activeElement.id'), `filter-${id}`);
      await field.fill(right);
      await dialog.getByRole('alert').waitFor({ state: 'detached' });
    }
    await show.click();
    await dialog.waitFor({ state: 'detached' });
    const { searchParams } = new URL(page.url());
    assert.deepEqual(
      [searchParams.get('code'), searchParams.get('origin')],
      ['503', 'https://hooks.example:443'],
    );
    await page.context().close();
  });

  test('a filter takes a receiver and a block as lists write them', async () => {
    const page = await stage.open('/deliveries', { key: stage.watcher.key });
    for (const [typed, origin] of [
      ['hooks.example:8443', 'https://hooks.example:8443'],
      ['hooks.example', 'https://hooks.example:443'],
      ['HTTP://Hooks.example./path', 'http://hooks.example:80'],
    ] as const) {
      await page.getByRole('button', { name: 'More' }).first().click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('Receiver', { exact: true }).fill(typed);
      await dialog.getByLabel('From block').fill('#148');
      await dialog.getByRole('button', { name: 'Show' }).click();
      await page.waitForURL((url) => url.searchParams.get('origin') === origin);
      assert.equal(new URL(page.url()).searchParams.get('from_block'), '148');
    }
    await page.context().close();
  });

  test('a filter by time keeps its seconds and milliseconds, and which of two same hours it means', async () => {
    const [first, second] = ['2026-10-25T00:30:00.000Z', '2026-10-25T01:30:00.000Z'];
    for (const [from, until] of [
      ['2026-01-31T12:34:56.789Z', '2026-02-01T12:34:07.000Z'],
      [first, second],
      [second, '2026-10-26T00:00:00.000Z'],
    ] as const) {
      const page = await stage.open(`/deliveries?from=${from}&until=${until}`, { key: stage.watcher.key });
      await page.evaluate(`localStorage.setItem('chainbell.zone', 'local')`);
      await page.reload();
      await page.getByRole('button', { name: 'More' }).first().click();
      await page.getByRole('dialog').getByLabel('Answer').fill('503');
      await page.getByRole('dialog').getByRole('button', { name: 'Show' }).click();
      await page.waitForURL((url) => url.searchParams.get('code') === '503');
      const { searchParams } = new URL(page.url());
      assert.deepEqual([searchParams.get('from'), searchParams.get('until')], [from, until]);
      await page.context().close();
    }
  });

  test('a key is ending until its last moment, and expired from then on', async () => {
    for (const [name, at] of [
      ['ending', Date.now() + DAY_MS],
      ['expired', Date.now()],
    ] as const) {
      const { keyId } = await createWatcher(stage.service, name);
      await expireKey(stage.service.database, keyId, new Date(at));
    }
    const page = await stage.open('/keys', { admin: ADMIN_TOKEN });
    await page.getByRole('row', { name: /^ending .+ Ending .+ in .+ Revoke/ }).waitFor();
    const expired = page.getByRole('row', { name: /^expired .+ Expired / });
    await expired.waitFor();
    assert.equal(await expired.getByRole('button').count(), 0);
    await page.context().close();
  });
});
