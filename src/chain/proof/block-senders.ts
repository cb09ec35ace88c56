/**
 * The senders of a block's native transfers: recovered at once, or kept as signed bytes until they are needed.
 */
import { randomInt } from 'node:crypto';
import type { ForgedSender, SenderEvidence, SenderScope } from './block-checks.ts';
import type { OnHashed } from './prove-block.ts';
import { recoverSender } from './senders.ts';

type SenderCollection = {
  add: OnHashed;
  /**
   * @returns the forged ones among the senders that the scope asks for and a sample, and the evidence for all
   * others.
   */
  finish(scope: SenderScope): { senders: SenderEvidence; forged: ForgedSender[] };
};

/**
 * One sender in this many is recovered in every block, at random, so that a node can't predict which.
 * Recovering all would more than double the processor time of a backfill (docs/explanation/decisions.md, 69); a
 * thirty-second of that is 3.5 %. If a node forges the senders of 500 transfers, fewer than one backfill in
 * seven million misses all of them.
 */
const SAMPLE_TRANSFERS = 32;

export function collectSenders(
  isSampled: () => boolean = () => randomInt(SAMPLE_TRANSFERS) === 0,
): SenderCollection {
  const transfers: { hash: string; from: unknown; encoded: Buffer }[] = [];
  return {
    add({ hash, from, value }, encoded) {
      // Notifications name the sender only of transactions that move the native coin.
      if (isZero(value)) return;
      transfers.push({ hash: String(hash), from, encoded });
    },
    finish(scope) {
      const hashes = transfers.map(({ hash }) => hash);
      const recovered = scope === 'all' ? transfers : transfers.filter(() => isSampled());
      const forged = recovered.flatMap(({ hash, from, encoded }) => {
        const signer = recoverSender(encoded);
        return signer === String(from).toLowerCase() ? [] : [{ hash, signer: signer ?? NO_SIGNER }];
      });
      if (scope === 'all') return { senders: { hashes, signed: undefined }, forged };
      // One piece of memory that can be handed over; the encodings lie in larger ones.
      const bytes = new Uint8Array(transfers.reduce((sum, { encoded }) => sum + encoded.length, 0));
      let end = 0;
      const ends = transfers.map(({ encoded }) => {
        bytes.set(encoded, end);
        end += encoded.length;
        return end;
      });
      return { senders: { hashes, signed: { bytes, ends } }, forged };
    },
  };
}

/** The signature belongs to no key at all. */
const NO_SIGNER = 'no account';

const isZero = (value: unknown) => typeof value !== 'string' || /^0x0*$/.test(value);
