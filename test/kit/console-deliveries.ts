/**
 * Watchers with payments, and what their receivers and the pages of the console then show.
 */
import type { Page } from 'playwright-core';
import type { Address } from '../../src/core/hex.ts';
import type { ConsoleStage } from './console-stage.ts';
import { createWatcher, freshAddress, type Watcher } from './service.ts';

type Watching = { watcher: Watcher; pay(count?: number): Promise<void>; id: string; address: Address };

/** The stage is only there once the tests run. */
export function createDeliveryTools(stageOf: () => ConsoleStage) {
  const received = (name: string) =>
    stageOf().receiver.requests.filter(({ path }) => path.endsWith(`/${name}`));
  return {
    /** A watcher with one address, and what pays to it. */
    async watching(name: string): Promise<Watching> {
      const { service, receiver, chain } = stageOf();
      const watcher = await createWatcher(service, name);
      const address = freshAddress();
      const { id } = await watcher.watch({ address, webhookUrl: `${receiver.url}/${name}` });
      return {
        ...{ watcher, id, address },
        async pay(count = 1) {
          for (let index = 0; index < count; index += 1)
            await chain.transferNative({ from: chain.accounts[1], to: address, valueWei: 10n ** 15n });
        },
      };
    },
    received,
    /** The ids of the deliveries to this receiver, newest first. */
    sentIds: (name: string) =>
      received(name)
        .map(({ json }) => (json as { id: number }).id)
        .toSorted((one, other) => other - one),
    async openLive(...[path, options]: Parameters<ConsoleStage['open']>): Promise<Page> {
      const page = await stageOf().open(path, options);
      await page.getByTitle('Live', { exact: true }).waitFor();
      return page;
    },
  };
}

/** The ids of the rows that the page shows. */
export const idsOf = (page: Page): Promise<number[]> =>
  page.evaluate<number[]>(
    `[...document.querySelectorAll('tbody a.row-link')].map((link) => Number(link.pathname.split('/').at(-1)))`,
  );
