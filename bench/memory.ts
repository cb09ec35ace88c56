/**
 * Measures the service's memory on PostgreSQL while it follows 10,000 new blocks, each with one transfer that causes a webhook.
 */
import { waitUntil } from '../test/kit/wait.ts';
import type { Figures } from './figures.ts';
import { setStage } from './stage.ts';

const BLOCKS = 10_000;
const ROWS = 5;
const DELIVERED_MS_MAX = 60_000;

export async function memory(): Promise<Figures> {
  let receivedCount = 0;
  await using stage = await setStage({
    internalTransfers: 'off',
    answer() {
      receivedCount += 1;
      return { status: 200 };
    },
  });
  const { chain } = stage;
  const [sender, receiver] = chain.accounts;
  await stage.watch(receiver);
  // Mine explicitly, because anvil's automatic mining falls behind and puts several transactions into one block.
  await chain.pauseMining();
  const rows: Figures['rows'] = [];
  for (let block = 1; block <= BLOCKS; block += 1) {
    await chain.send({ from: sender, to: receiver, valueWei: 1n });
    await chain.mine();
    if (block % (BLOCKS / ROWS) !== 0) continue;
    await waitUntil(() => receivedCount >= block, {
      timeoutMs: DELIVERED_MS_MAX,
      describe: `${block} webhooks`,
    });
    const { resident, peak } = stage.memoryMiB();
    rows.push({ blocks: block, webhooks: receivedCount, residentMiB: resident, peakMiB: peak });
    // Drop the requests that the test receiver keeps, because only the service's memory matters here.
    stage.receiver.requests.length = 0;
  }
  return { conditions: { blocks: BLOCKS, internalTransfers: 'off', database: 'PostgreSQL' }, rows };
}
