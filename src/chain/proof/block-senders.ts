/**
 * Collects the senders of a block's native transfers and of the transactions whose senders points rules use. It recovers
 * them at once, or keeps the signed bytes until a sender is needed.
 */
import { randomInt } from 'node:crypto';
import type { BlockProof, Checks, ForgedSender, SenderEvidence, SenderScope } from './block-checks.ts';
import type { OnHashed } from './prove-block.ts';
import { UNSIGNED } from './roots.ts';
import { recoverSender } from './senders.ts';

type SenderCollection = {
  add: OnHashed;
  /**
   * Recovers all senders, or for the scope `matched` the needed ones and a random sample of the others.
   * @returns the forged senders among them, and the evidence for recovering senders later. `madeUp` are the transactions whose
   * signature may be made up by the chain. They count as unsigned, so there is no evidence for them.
   */
  finish(scope: SenderScope): SenderFindings;
};

type SenderFindings = { senders: SenderEvidence; forged: ForgedSender[]; madeUp: ForgedSender[] };

type CollectorOptions = {
  /** The hashes of transactions whose senders are recovered even without a value, and not only sampled. */
  needed?: readonly string[];
  isSampled?: () => boolean;
};

/**
 * One transfer in this many has its sender recovered in every block. The choice is random, so a node can't
 * predict it. Recovering all senders would more than double the processor time of a backfill
 * (docs/explanation/decisions.md, 69). One in 32 costs 3.5 %. If a node forges the senders of 500 transfers,
 * fewer than one backfill in seven million misses all of them.
 */
const SAMPLE_TRANSFERS = 32;

export function collectSenders({
  needed = [],
  isSampled = () => randomInt(SAMPLE_TRANSFERS) === 0,
}: CollectorOptions = {}): SenderCollection {
  const neededHashes = new Set<unknown>(needed);
  const transfers: { hash: string; from: unknown; encoded: Buffer; isNeeded: boolean }[] = [];
  const madeUp: ForgedSender[] = [];
  return {
    add({ hash, from, value, r, s }, encoded) {
      const isNeeded = neededHashes.has(hash);
      // Only native transfers and points rules take a sender from the transaction.
      if (isZero(value) && !isNeeded) return;
      if (isOne(r) && isOne(s)) {
        const signer = recoverSender(encoded);
        if (signer !== String(from).toLowerCase()) {
          madeUp.push({ hash: String(hash), signer: signer ?? NO_SIGNER });
          return;
        }
      }
      transfers.push({ hash: String(hash), from, encoded, isNeeded });
    },
    finish(scope) {
      const hashes = transfers.map(({ hash }) => hash);
      const recovered =
        scope === 'all' ? transfers : transfers.filter(({ isNeeded }) => isNeeded || isSampled());
      const forged = recovered.flatMap(({ hash, from, encoded }) => {
        const signer = recoverSender(encoded);
        return signer === String(from).toLowerCase() ? [] : [{ hash, signer: signer ?? NO_SIGNER }];
      });
      if (scope === 'all') return { senders: { hashes, signed: undefined }, forged, madeUp };
      // A separate buffer can be transferred to the main thread. The encodings are views of larger buffers.
      const bytes = new Uint8Array(transfers.reduce((sum, { encoded }) => sum + encoded.length, 0));
      let end = 0;
      const ends = transfers.map(({ encoded }) => {
        bytes.set(encoded, end);
        end += encoded.length;
        return end;
      });
      return { senders: { hashes, signed: { bytes, ends } }, forged, madeUp };
    },
  };
}

/**
 * The proof of a block with its senders. Moonbeam gives r = s = 1 to transactions that another chain dispatches (XCM). Anyone
 * can find a transaction that some account signed so, and a node could then name any sender for it. So a sender
 * that is not the signer is accepted only like one of an unsigned transaction, and only if the transaction is in the block.
 */
export function withSenders(checks: Checks, { senders, forged, madeUp }: SenderFindings): BlockProof {
  if (madeUp.length === 0) return { ...checks, senders, forged };
  if (checks.transactionsRoot !== 'holds') return { ...checks, senders, forged: [...forged, ...madeUp] };
  const unencodableTypes = [...new Set([...checks.unencodableTypes, UNSIGNED])].sort();
  return { ...checks, unencodableTypes, hasMadeUpSignature: true, senders, forged };
}

/** Stands for the signer if no key matches the signature. */
const NO_SIGNER = 'no account';

const isOne = (value: unknown) => typeof value === 'string' && /^0x0*1$/.test(value);
const isZero = (value: unknown) => typeof value !== 'string' || /^0x0*$/.test(value);
