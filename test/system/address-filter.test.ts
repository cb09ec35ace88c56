/**
 * The whole program with an address filter: a real chain, a real receiver, and addresses that are registered while it runs.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import { sampledKinds } from '../kit/each-database.ts';
import { startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, startTestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

for (const kind of sampledKinds(import.meta.url))
  describe(`with the ${kind} database`, () => {
    test('a service with a filter sends the webhooks of all its addresses, and asks the database for few others', async () => {
      await using parts = new AsyncDisposableStack();
      const chain = parts.use(await startChain());
      const receiver = parts.use(await startReceiver());
      const service = parts.use(
        await startTestService({
          database: parts.use(await createTestDatabase(kind)),
          ...{ rpc: [chain.url, chain.wsUrl], receivers: [receiver] },
          chain: { addressFilter: { minRecords: 1 } },
        }),
      );
      const watcher = await createWatcher(service, 'acme');
      const heard = async () => {
        const address = freshAddress();
        await watcher.watch({ address, webhookUrl: `${receiver.url}/${address}` });
        await pay(address);
        await waitUntil(() => receiver.requests.some(({ path }) => path.endsWith(address)));
      };
      const pay = (to: ReturnType<typeof freshAddress>) =>
        chain.transferNative({ from: chain.accounts[1], to, valueWei: 1n });

      await heard();
      await waitUntil(async () => (await service.metric('chainbell_address_filter_entries')) > 0, {
        describe: 'the filter',
      });
      const before = await service.metric('chainbell_address_filter_passed_total');
      // Each block has the sender and one receiver.
      for (let count = 0; count < 5; count += 1) await heard();
      for (let count = 0; count < 5; count += 1) await pay(freshAddress());
      await service.inSync(chain);
      const passed = (await service.metric('chainbell_address_filter_passed_total')) - before;
      assert.ok(passed >= 1 && passed <= 7, `${passed} addresses passed`);
      assert.ok((await service.metric('chainbell_address_filter_probes_total')) >= 10);
    });
  });
