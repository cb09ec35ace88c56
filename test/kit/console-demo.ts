/**
 * The demo with two receivers in trouble, for looking at each screen of the console with data in it.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { startDemo } from '../../devnet/demo.ts';
import { type Service, startService } from '../../src/app/service.ts';
import type { Database } from '../../src/store/db/db.ts';
import { openTab, type View } from './browser.ts';
import type { Screen, ScreenFacts } from './console-screens.ts';
import { startReceiver } from './receiver.ts';
import { waitUntil } from './wait.ts';

const SETTLE_MS_MAX = 120_000;
const BLOCK_SECONDS = 2;

export type ConsoleDemo = {
  facts: ScreenFacts;
  database: Database;
  /** Opens a screen, and resolves when its data is there. */
  show(browser: Browser, screen: Screen, watch?: (page: Page) => void, view?: View): Promise<Page>;
  [Symbol.asyncDispose](): Promise<void>;
};

type Row = { id: number };

/** Starts the demo with a receiver that answers 503 and one that hangs, and waits until both are in trouble. */
// oxlint-disable-next-line max-lines-per-function -- linear: each part is started once the one before it is up
export async function startConsoleDemo(): Promise<ConsoleDemo> {
  await using own = new AsyncDisposableStack();
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-console-'));
  own.defer(() => rm(folder, { recursive: true, force: true }));
  const failing = own.use(
    await startReceiver({ answer: { status: 503, body: '{"error":"maintenance"}', delayMs: 40 } }),
  );
  const hung = own.use(await startReceiver({ answer: 'hang' }));
  let service: Service | undefined;
  const demo = await startDemo(
    {
      version: '0.1.0',
      onStep: () => {},
      onLine: () => {},
      async startService(config, options) {
        const ports = [...config.webhooks.ports, failing.port, hung.port];
        service = await startService({ ...config, webhooks: { ...config.webhooks, ports } }, options);
        return service;
      },
    },
    {
      dataFolder: folder,
      port: undefined,
      blockTimeSeconds: BLOCK_SECONDS,
      retryMinutes: undefined,
      fresh: true,
    },
    new AbortController().signal,
  );
  own.defer(() => demo.stop());
  if (service === undefined) throw new Error('the demo started no service');
  const { database, issueKey }: Service = service;
  const { apiUrl, apiKey, adminToken, month, scene } = demo.facts;
  const ask = async <T>(name: string, body?: unknown): Promise<T> => {
    const response = await fetch(`${apiUrl}/api/${name}`, {
      method: body === undefined ? 'GET' : 'POST',
      headers: { authorization: `Bearer ${apiKey}`, 'content-type': 'application/json' },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const parsed = JSON.parse(await response.text()) as { data?: T };
    return parsed.data ?? (parsed as T);
  };
  const watch = (address: string | undefined, webhook_url: string) =>
    ask<{ id: string }>('notifications/watched-addresses', { address, webhook_url });
  const { id: record } = await watch(scene.traders[2], failing.url);
  await watch(scene.traders[3], hung.url);
  const failed = async () =>
    (await ask<Row[]>(`notifications/log?watched_address_id=${record}&status=retrying&limit=1`))[0];
  const isHung = async () =>
    (await ask<{ state: string }[]>('notifications/receivers')).some(({ state }) => state === 'hung');
  await waitUntil(async () => (await failed()) !== undefined && (await isHung()), {
    timeoutMs: SETTLE_MS_MAX,
    describe: 'both receivers to be in trouble',
  });
  const [leader] = await ask<{ user: string }[]>(`points/leaderboard?month=${month}&limit=1`);
  const user = leader?.user ?? '';
  const [award] = await ask<{ hash: string }[]>(`points/user?month=${month}&user=${user}&limit=1`);
  const facts: ScreenFacts = {
    ...{ record, user, transaction: award?.hash ?? '' },
    delivery: (await failed())?.id ?? 0,
    origin: new URL(failing.url).origin,
  };
  const { key: newKey } = await issueKey('newcomer');
  const parts = own.move();
  const fragments = {
    watcher: `#key=${apiKey}`,
    newcomer: `#key=${newKey}`,
    operator: `#admin=${adminToken}`,
    anyone: '',
  };
  return {
    ...{ facts, database },
    async show(browser, screen, watchPage = () => {}, view = {}) {
      const { page } = await openTab(browser, view);
      watchPage(page);
      await page.goto(`${apiUrl}/console${screen.path(facts)}${fragments[screen.who]}`);
      await page.getByText(screen.ready).first().waitFor();
      await screen.act?.(page);
      return page;
    },
    [Symbol.asyncDispose]: () => parts.disposeAsync(),
  };
}
