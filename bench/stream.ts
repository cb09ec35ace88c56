/**
 * Measures how soon after a receiver's answer the attempt is on the stream of attempts, in one process and between two: transfers
 * of one watched address, one at a time.
 */
import { performance } from 'node:perf_hooks';
import { type Chain, startChain } from '../test/kit/anvil.ts';
import { createTestDatabase } from '../test/kit/database.ts';
import { startReceiver } from '../test/kit/receiver.ts';
import { createWatcher, freshAddress, startTestService, type TestService } from '../test/kit/service.ts';
import { waitUntil } from '../test/kit/wait.ts';
import type { Figures } from './figures.ts';
import { percentile } from './stage.ts';

const TRANSFERS = 200;
const places: { what: string; roles: ('follower' | 'delivery' | 'api')[][] }[] = [
  { what: 'one process', roles: [['follower', 'delivery', 'api']] },
  { what: 'two processes', roles: [['follower', 'delivery'], ['api']] },
];

export async function stream(): Promise<Figures> {
  const rows = [];
  for (const { what, roles } of places) {
    const times = (await measure(roles)).toSorted((one, other) => one - other);
    rows.push({
      what,
      p50Ms: percentile(times, 0.5),
      p99Ms: percentile(times, 0.99),
      maxMs: percentile(times, 1),
    });
  }
  return { conditions: { transfers: TRANSFERS, database: 'PostgreSQL, fsync off' }, rows };
}

/** Milliseconds from the answer of the receiver to the event, for each transfer. */
async function measure(roles: ('follower' | 'delivery' | 'api')[][]): Promise<number[]> {
  await using parts = new AsyncDisposableStack();
  const chain: Chain = parts.use(await startChain());
  const answeredMs: number[] = [];
  const receiver = parts.use(
    await startReceiver({
      answer() {
        answeredMs.push(performance.now());
        return {};
      },
    }),
  );
  const database = parts.use(await createTestDatabase('postgres'));
  const services: TestService[] = [];
  for (const role of roles)
    services.push(
      parts.use(
        await startTestService({
          ...{ database, rpc: [chain.url, chain.wsUrl], receivers: [receiver], roles: role },
        }),
      ),
    );
  const service = services.at(-1);
  if (service === undefined) throw new Error('no service');
  const watcher = await createWatcher(service, 'bench');
  const address = freshAddress();
  await watcher.watch({ address, webhookUrl: receiver.url });
  await service.inSync(chain);
  const seenMs: number[] = [];
  const hangUp = new AbortController();
  parts.defer(() => hangUp.abort());
  const response = await fetch(`${service.apiUrl}/api/notifications/attempts/stream`, {
    headers: { authorization: `Bearer ${watcher.key}` },
    signal: hangUp.signal,
  });
  void (async () => {
    for await (const text of response.body?.pipeThrough(new TextDecoderStream()) ?? [])
      for (const _ of text.matchAll(/^event: attempt$/gm)) seenMs.push(performance.now());
  })().catch(() => {});
  for (let count = 1; count <= TRANSFERS; count += 1) {
    await chain.transferNative({ from: chain.accounts[1], to: address, valueWei: 1n });
    await waitUntil(() => seenMs.length >= count, { pollMs: 1 });
  }
  return seenMs.map((ms, index) => ms - (answeredMs[index] ?? Number.NaN));
}
