/**
 * The watched addresses that the page has seen, so that a row can tell the visitor's own address from the other one.
 */
import { signal } from '@preact/signals';
import { curlOf } from './client.ts';
import type { WatchedAddress } from './types.ts';

/** More would only be memory: a page shows 100 rows. */
const KNOWN_MAX = 2_000;

const addresses = signal<ReadonlyMap<string, string>>(new Map());

/** The address of a record, if the page has seen it. */
export const ownAddressOf = (recordId: string): string | undefined => addresses.value.get(recordId);

export function noteRecords(records: readonly WatchedAddress[]): void {
  const known = new Map(addresses.peek());
  for (const { id, address } of records) if (known.size < KNOWN_MAX) known.set(id, address);
  if (known.size !== addresses.peek().size) addresses.value = known;
}

/** The command that watches the first address. */
export const createCommand = (): string =>
  curlOf('POST /api/notifications/watched-addresses', {
    body: { address: '0x…', webhook_url: 'https://hooks.example.com/deposits' },
  });
