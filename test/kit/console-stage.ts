/**
 * The console on its stage: the built files, the whole program between a real chain and real receivers, and a browser.
 */
import { execFile } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { Browser, Page } from 'playwright-core';
import { type Chain, startChain } from './anvil.ts';
import { openTab, startBrowser } from './browser.ts';
import { createTestDatabase, type TestDatabase } from './database.ts';
import { type Receiver, startReceiver } from './receiver.ts';
import {
  createWatcher,
  startTestService,
  type TestService,
  type TestServiceOptions,
  type Watcher,
} from './service.ts';

const BUILD = fileURLToPath(new URL('../../console/build.ts', import.meta.url));
export const ADMIN_TOKEN = 'a'.repeat(40);

export type ConsoleStage = {
  chain: Chain;
  receiver: Receiver;
  service: TestService;
  database: TestDatabase;
  watcher: Watcher;
  browser: Browser;
  /** Ends the service, and starts it again on the same port once `between` is done. */
  restart(between: () => Promise<void>): Promise<void>;
  /** A new visitor at a page of the console. With a key, the page opens signed in. */
  open(
    path: string,
    options?: Parameters<typeof openTab>[1] & { key?: string; admin?: string },
  ): Promise<Page>;
  [Symbol.asyncDispose](): Promise<void>;
};

/** Builds what is missing or old. */
export async function buildConsole(): Promise<void> {
  await promisify(execFile)(process.execPath, [BUILD]);
}

export async function createConsoleStage(
  options: Partial<Pick<TestServiceOptions, 'retryMinutes' | 'sections'>> = {},
): Promise<ConsoleStage> {
  await buildConsole();
  await using own = new AsyncDisposableStack();
  const chain = own.use(await startChain());
  const receiver = own.use(await startReceiver());
  const database = own.use(await createTestDatabase('embedded'));
  const given = {
    ...options,
    database,
    rpc: [chain.url, chain.wsUrl],
    receivers: [receiver],
    adminToken: ADMIN_TOKEN,
  };
  let service = await startTestService(given);
  own.defer(() => service.stop());
  const watcher = await createWatcher(service, 'acme');
  await service.inSync(chain);
  const browser = await startBrowser();
  own.defer(() => browser.close());
  const parts = own.move();
  return {
    ...{ chain, receiver, database, watcher, browser },
    get service() {
      return service;
    },
    async restart(between) {
      const { port } = new URL(service.apiUrl);
      await service.stop();
      await between();
      service = await startTestService({ ...given, port: Number(port), chain: { startBlock: 1 } });
    },
    async open(path, { key, admin, ...view } = {}) {
      const { page } = await openTab(browser, view);
      const fragment = key !== undefined ? `#key=${key}` : admin !== undefined ? `#admin=${admin}` : '';
      await page.goto(`${service.apiUrl}/console${path}${fragment}`);
      return page;
    },
    [Symbol.asyncDispose]: () => parts.disposeAsync(),
  };
}
