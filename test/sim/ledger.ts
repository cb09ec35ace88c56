/**
 * Services that credit accounts from webhooks alone, as docs/how-to/credit-deposits.md describes them. At the end their books are compared
 * with the canonical chain.
 */
import { isRecord, parseExact } from '../../src/core/json.ts';
import type { Message } from '../../src/delivery/send.ts';
import type { Oracle } from './oracle.ts';
import type { SimRecord } from './rules.ts';

type Entry = { revision: number; recordId: string; amount: bigint };

export type Ledger = {
  /** Books one webhook, completely or not at all. */
  take(message: Pick<Message, 'headers' | 'body'>): void;
  /** The credits of an account, by the `id` of the webhook. */
  creditsOf(recordId: string): Map<number, bigint>;
};

/** Applies only a higher revision of an `id`, and reads an odd one as zero. For watched addresses with `removed`. */
export const createHeaderLedger = (): Ledger =>
  createLedger(({ headers }) => Number(headers['webhook-id']?.split('-')[1] ?? 0));

/** Follows only the specification: credits every `id` once. */
export const createPlainLedger = (): Ledger => createLedger(() => 0);

function createLedger(revisionOf: (message: Pick<Message, 'headers'>) => number): Ledger {
  const entries = new Map<number, Entry>();
  return {
    take(message) {
      const json = parseExact(message.body);
      if (!isRecord(json)) throw new Error('a webhook without an object');
      const id = Number(json.id);
      const revision = revisionOf(message);
      if ((entries.get(id)?.revision ?? -1) >= revision) return;
      const recordId = String(json.watched_addresses_id);
      entries.set(id, { revision, recordId, amount: BigInt(String(json.amount)) });
    },
    creditsOf: (recordId) =>
      new Map(
        Array.from(entries)
          .filter(([, entry]) => entry.recordId === recordId && entry.revision % 2 === 0)
          .map(([id, { amount }]) => [id, amount]),
      ),
  };
}

/**
 * Compares the books with the chain when no notification is open. With `removed` they must be exact. Without it no credit
 * may be missing, and none may be too much if confirmations are deeper than any reorg (`isConfirmed`).
 */
export function judgeLedgers(
  { records, byId }: Pick<Oracle, 'records' | 'byId'>,
  { headers, plain, isConfirmed }: { headers: Ledger; plain: Ledger; isConfirmed: boolean },
  fail: (problem: string) => void,
): void {
  for (const record of records.values()) {
    if (record.isGone || record.removed === 'changed') continue;
    const hasRemoved = record.removed === 'always';
    const credits = (hasRemoved ? headers : plain).creditsOf(record.id);
    judge(record, credits, hasRemoved || isConfirmed);
  }

  function judge({ id: recordId, name }: SimRecord, credits: ReadonlyMap<number, bigint>, isExact: boolean) {
    const canonical = Array.from(byId).filter(([, one]) => one.record.id === recordId && !one.isOrphaned);
    for (const [id, { state, transfer }] of canonical) {
      if (state === 'processed' && credits.get(id) !== transfer.amount)
        fail(`the ledger of ${name} lacks ${transfer.amount} of notification ${id}`);
    }
    const known = new Set(canonical.map(([id]) => id));
    for (const id of credits.keys())
      if (isExact && !known.has(id)) fail(`the ledger of ${name} credits ${id}, which is not on the chain`);
  }
}
