/**
 * The senders of a block's native transfers: recovered at once, or kept as signed bytes until somebody needs them.
 */
import type { ForgedSender, SenderEvidence, SenderScope } from './proof.ts';
import type { OnHashed } from './prove-block.ts';
import { recoverSender } from './senders.ts';

export type SenderCollection = {
  add: OnHashed;
  /** @returns the forged ones among the senders that the scope asks for, and the evidence for all others. */
  finish(scope: SenderScope): { senders: SenderEvidence; forged: ForgedSender[] };
};

export function collectSenders(): SenderCollection {
  const transfers: { hash: string; from: unknown; encoded: Buffer }[] = [];
  return {
    add({ hash, from, value }, encoded) {
      // Only what moves the native coin has a sender that is told.
      if (isZero(value)) return;
      transfers.push({ hash: String(hash), from, encoded });
    },
    finish(scope) {
      const hashes = transfers.map(({ hash }) => hash);
      if (scope === 'all') {
        const forged = transfers.flatMap(({ hash, from, encoded }) => {
          const signer = recoverSender(encoded);
          return signer === String(from).toLowerCase() ? [] : [{ hash, signer: signer ?? NO_SIGNER }];
        });
        return { senders: { hashes, signed: undefined }, forged };
      }
      // One piece of memory that can be handed over; the encodings lie in larger ones.
      const bytes = new Uint8Array(transfers.reduce((sum, { encoded }) => sum + encoded.length, 0));
      let end = 0;
      const ends = transfers.map(({ encoded }) => {
        bytes.set(encoded, end);
        end += encoded.length;
        return end;
      });
      return { senders: { hashes, signed: { bytes, ends } }, forged: [] };
    },
  };
}

/** The signature belongs to no key at all. */
const NO_SIGNER = 'nobody';

const isZero = (value: unknown) => typeof value !== 'string' || /^0x0*$/.test(value);
