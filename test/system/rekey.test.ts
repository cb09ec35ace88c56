/**
 * Replaces a secret while everything runs: no request is refused, all webhooks arrive, and afterwards the former secret is
 * no longer needed.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { describe, test } from 'node:test';
import { Webhook } from 'standardwebhooks';
import { Fault } from '../../src/core/fault.ts';
import { deriveKeyRing } from '../../src/domain/key-ring.ts';
import { secretText } from '../../src/domain/signature.ts';
import { listKekIds } from '../../src/store/watchers/api-keys.ts';
import { rekeyBatch } from '../../src/store/watchers/rekey.ts';
import { listSigningSecrets } from '../../src/store/watchers/signing-secrets.ts';
import { headerOf, mine, transferOf } from '../kit/chain-story.ts';
import { createTestDatabase } from '../kit/database.ts';
import { sampledKinds } from '../kit/each-database.ts';
import { type ReceivedRequest, startReceiver } from '../kit/receiver.ts';
import { createWatcher, freshAddress, startTestService, type TestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

const WATCHERS = 8;
/** Together with the signing secrets, these are three batches. */
const KEYS_PER_WATCHER = 28;
const CLIENTS = 3;
const REQUESTS_MAX = 20_000;

for (const kind of sampledKinds(import.meta.url)) {
  describe(`with the ${kind} database`, () => {
    test('during a rekey, every request is authorized and every webhook arrives', async () => {
      const [former, present] = [randomBytes(32), randomBytes(32)];
      const [formerText, presentText] = [former.toString('base64'), present.toString('base64')];
      await using own = new AsyncDisposableStack();
      const place = own.use(await createTestDatabase(kind));
      const receiver = own.use(await startReceiver());
      const start = (secret: string, ...formerSecrets: string[]) =>
        startTestService({
          database: place,
          rpc: ['http://127.0.0.1:1'],
          roles: ['api', 'delivery'],
          receivers: [receiver],
          secret,
          formerSecrets,
        });

      let height = 0;
      const watchers: { id: number; address: `0x${string}`; keys: Set<string> }[] = [];
      {
        await using service = await start(formerText);
        for (let index = 0; index < WATCHERS; index += 1) {
          const name = `watcher ${index}`;
          const watcher = await createWatcher(service, name);
          const address = freshAddress();
          await watcher.watch({ address, webhookUrl: `${receiver.url}/${address}` });
          const keys = new Set([watcher.key]);
          while (keys.size < KEYS_PER_WATCHER) keys.add((await service.issueKey(name)).key);
          watchers.push({ id: watcher.id, address, keys });
        }
      }

      {
        await using stage = new AsyncDisposableStack();
        const service = stage.use(await start(presentText, formerText));
        // On a server, a process that is not restarted yet knows the new secret as the other one.
        const services =
          kind === 'postgres' ? [service, stage.use(await start(formerText, presentText))] : [service];
        const { database } = service;
        const store = { database, keyRing: deriveKeyRing(present, [former]) };
        const secrets = new Map<number, string[]>();
        for (const { id } of watchers) {
          const listed = await listSigningSecrets(store, id, new Date());
          secrets.set(
            id,
            listed.map(({ keys }) => secretText(keys)),
          );
        }

        const stop = new AbortController();
        const statuses: number[] = [];
        const allKeys = watchers.flatMap(({ keys }) => [...keys]);
        const ask = async (index: number) => {
          const one = services[index % services.length] ?? service;
          statuses.push(await statusOf(one, allKeys[(index * 7) % allKeys.length] ?? ''));
        };
        let asked = 0;
        const client = async () => {
          while (!stop.signal.aborted && asked < REQUESTS_MAX) await ask(asked++);
        };
        const payer = async () => {
          while (!stop.signal.aborted) {
            height += 1;
            const transfers = watchers.map(({ address }) => transferOf({ receiver: address }));
            await mine(database, headerOf(height), transfers);
            await receiver.waitFor(height * WATCHERS, 30_000);
          }
        };
        const traffic = [payer(), ...Array.from({ length: CLIENTS }, client)];
        const trafficGoesOn = async () => {
          const [requestCount, blockCount] = [statuses.length + 20, height + 2];
          await waitUntil(() => statuses.length > requestCount && height > blockCount);
        };

        let batchCount = 0;
        await trafficGoesOn();
        while ((await rekeyBatch(store)) > 0) {
          batchCount += 1;
          await trafficGoesOn();
        }
        stop.abort();
        await Promise.all(traffic);
        await service.drained();

        assert.equal(batchCount, 3);
        assert.deepEqual(
          statuses.filter((status) => status !== 200),
          [],
          `of ${statuses.length} requests`,
        );
        const rows = await service.notifications({});
        assert.equal(rows.length, height * WATCHERS);
        assert.ok(rows.every((row) => row.is_processed && row.retry_count === 0));
        for (const request of receiver.requests) {
          const watcher = watchers.find(({ address }) => request.path.endsWith(address));
          assert.ok(watcher !== undefined, request.path);
          assert.ok(watcher.keys.has(bearerOf(request)));
          for (const secret of secrets.get(watcher.id) ?? []) verify(secret, request);
        }
        assert.deepEqual(await listKekIds(database), [store.keyRing.kekId]);
      }

      await assert.rejects(
        start(formerText),
        (error: unknown) => error instanceof Fault && error.code === 'invalid',
      );
      await using after = await start(presentText);
      const [watcher] = watchers;
      assert.ok(watcher !== undefined);
      for (const key of watcher.keys) assert.equal(await statusOf(after, key), 200);
      const transfer = transferOf({ receiver: watcher.address });
      await mine(after.database, headerOf(height + 1), [transfer]);
      const request = (await receiver.waitFor(height * WATCHERS + 1)).at(-1);
      assert.ok(request !== undefined && watcher.keys.has(bearerOf(request)));
    });
  });
}

async function statusOf({ apiUrl }: TestService, key: string): Promise<number> {
  const response = await fetch(`${apiUrl}/api/notifications/watched-addresses?limit=1`, {
    headers: { authorization: `Bearer ${key}` },
  });
  await response.arrayBuffer();
  return response.status;
}

const bearerOf = ({ headers }: ReceivedRequest) => headers.authorization?.replace(/^Bearer /, '') ?? '';

/** Verifies as a receiver does, and throws if the signature is wrong. */
function verify(secret: string, { body, headers }: ReceivedRequest): void {
  const { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signature } = headers;
  new Webhook(secret).verify(body, {
    'webhook-id': String(id),
    'webhook-timestamp': String(timestamp),
    'webhook-signature': String(signature),
  });
}
