/**
 * Test webhooks, with which a watcher checks a receiver. A test webhook is made up and sent at once, through the same sender and
 * guard as all others, and isn't stored.
 */
import { zeroAddress } from '../core/hex.ts';
import { shardOfRecord } from '../domain/shard.ts';
import type { WatchedAddress } from '../store/watchers/watched.ts';
import { type Credentials, readCredentialsOf, sendWith } from './credentials.ts';
import type { DeliveryOptions } from './lane.ts';
import { renderMessage } from './payload.ts';
import type { Message, SendResult } from './send.ts';
import { renderShown } from './shown-message.ts';

/**
 * Sends a test webhook to the URL of the watched address and returns the request, without its secrets, and the outcome. Rejects only
 * as Send does. Id, hash, sender and amount are zero, so a receiver that overlooks `webhook-test: true` credits nothing.
 */
export type SendTest = (
  record: WatchedAddress,
  signal: AbortSignal,
) => Promise<SendResult & { request: Message }>;

export function createTestSender(
  options: Pick<DeliveryOptions, 'database' | 'clock' | 'log' | 'keyRing' | 'nativeSymbol' | 'send'>,
): SendTest {
  const { database, clock, log, keyRing, nativeSymbol } = options;
  return async (record, signal) => {
    const { watcherId } = record;
    const now = clock.now();
    const credentials = await readCredentialsOf({ database, keyRing, clock }, watcherId);
    const made = {
      id: 0,
      shardId: shardOfRecord(watcherId, record.id),
      laneId: 0,
      watchedAddressId: record.id,
      watcherId,
      hash: `0x${'0'.repeat(64)}`,
      type: 'COIN_TRANSFER',
      sender: zeroAddress,
      receiver: record.address,
      amount: 0n,
      token: undefined,
      createdAt: now.toISOString().replace('T', ' ').replace('Z', '000'),
      createdTime: now,
      webhookUrl: record.webhookUrl,
      retryCount: 0,
      redeliveryCount: 0,
      revision: 0,
      blockNumber: 0,
      blockHash: undefined,
      replaces: undefined,
      nextRetryAt: undefined,
      isOrdered: false,
    } as const;
    const asTest = (message: Message): Message => ({
      ...message,
      headers: { ...message.headers, 'webhook-test': 'true' },
    });
    let hasKey = false;
    const render = (current: Credentials) => {
      hasKey = current.apiKey !== undefined;
      return asTest(renderMessage(made, { ...current, nativeSymbol, now }));
    };
    const result = await sendWith(credentials, { watcherId, render, signal }, options);
    const { outcome, status, durationMs } = result;
    log.info(
      { watchedAddress: record.id, watcher: watcherId, outcome, status, durationMs },
      'delivery.tested',
    );
    return { ...result, request: asTest(renderShown(made, { hasKey, nativeSymbol, now })) };
  };
}
