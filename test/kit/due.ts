/**
 * Due notifications of lanes that no database has.
 */
import type { Due } from '../../src/delivery/reader.ts';

/** A due notification of watcher 7. The number of its lane is that of its shard. */
export const dueOf = ({
  laneId,
  id,
  retryCount,
}: {
  laneId: number;
  id: number;
  retryCount: number;
}): Due => ({
  notification: {
    ...{ id, shardId: laneId, laneId, watcherId: 7, watchedAddressId: 'one' },
    ...{ hash: '0xab', type: 'COIN_TRANSFER', sender: '0x11', receiver: '0x22', amount: 1n },
    ...{ token: undefined, createdAt: '2026-01-02 03:04:05.678901', createdTime: new Date(0) },
    ...{ webhookUrl: 'https://hooks.example.com/', revision: 0, blockNumber: 1, blockHash: undefined },
    ...{ replaces: undefined, retryCount, redeliveryCount: 0, nextRetryAt: undefined, isOrdered: false },
  },
  credentials: { readMs: 0, apiKey: undefined, signingKeys: [] },
});
