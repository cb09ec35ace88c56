/**
 * Proof of data that no hash covers, for transfers that match a watched address: the sender of a native transfer by its
 * signature or by agreement of several nodes, an internal transfer by agreement of several tracing nodes.
 */
import { quantityOf } from '../chain/blocks/bundle.ts';
import type { Voters } from '../chain/nodes/unhashed-data.ts';
import { findSigned } from '../chain/proof/block-checks.ts';
import type { Verifier } from '../chain/proof/verifier.ts';
import { parseBlock } from '../chain/rpc/parse.ts';
import { Fault } from '../core/fault.ts';
import type { Address, Hash } from '../core/hex.ts';
import type { Log } from '../core/log.ts';
import type { Transfer } from '../domain/block.ts';
import type { MatchedTransfer } from '../store/matching/matching.ts';
import type { ReadBlock } from './read-ahead.ts';

type Vouching = {
  /** Those that `prove` has not seen; tokens are in receipts, which the block's hash covers. */
  findUnproved(matched: readonly MatchedTransfer[]): MatchedTransfer[];
  /**
   * A block that must be read again, because the node that gave it lied about these; undefined when all are proved. Senders
   * without a signature become those that the nodes agree on. @throws Fault when fewer nodes than needed answer alike.
   */
  prove(unproved: readonly MatchedTransfer[], signal: AbortSignal): Promise<number | undefined>;
};

type VouchOptions = {
  voters: Voters;
  recover: Verifier['recover'];
  log: Log;
};

/** For the blocks of one commit. */
export type Vouch = (blocks: readonly ReadBlock[]) => Vouching;

export function createVouch({ voters, recover, log }: VouchOptions): Vouch {
  /** Compares the sender that the node named with the signer. */
  async function findForged(signed: readonly Signed[]): Promise<MatchedTransfer | undefined> {
    if (signed.length === 0) return undefined;
    const signers = await recover(signed.map(({ bytes }) => bytes));
    const index = signed.findIndex(({ matched }, at) => signers[at] !== matched.transfer.sender);
    const forged = signed[index]?.matched;
    if (forged === undefined) return undefined;
    const { sender, txHash } = forged.transfer;
    log.warn(
      { block: forged.block, transaction: txHash, sender, signer: signers[index] ?? null },
      'sender.forged',
    );
    return forged;
  }

  /** The senders that the nodes of a quorum name in this block, by transaction. */
  async function voteOnSenders({ header }: ReadBlock, signal: AbortSignal): Promise<Map<Hash, Address>> {
    const senders = await voters.agree(
      [{ method: 'eth_getBlockByNumber', params: [quantityOf(header.number), true] }],
      ([answer], nodeName) => {
        if (answer?.ok !== true || answer.result === null)
          throw new Fault('unavailable', `${nodeName} does not have block ${header.number}`);
        const block = parseBlock(answer.result);
        if (block.header.hash !== header.hash)
          throw new Fault(
            'unavailable',
            `${nodeName} has another block ${header.number} than ${header.hash}`,
          );
        return block.transactions.map(({ hash, from }) => [hash, from] as const);
      },
      signal,
      JSON.stringify,
    );
    return new Map(senders);
  }

  /** Gives the native transfers that no signature proves the senders that the nodes agree on. */
  async function correctSenders(block: ReadBlock, signal: AbortSignal): Promise<Transfer[]> {
    const senderOf = await voteOnSenders(block, signal);
    const corrected: Transfer[] = [];
    for (const [index, transfer] of block.transfers.entries()) {
      if (transfer.kind !== 'transaction' || block.senders?.hashes.includes(transfer.txHash) === true)
        continue;
      const sender = senderOf.get(transfer.txHash) ?? transfer.sender;
      if (sender !== transfer.sender)
        log.warn(
          {
            block: block.header.number,
            transaction: transfer.txHash,
            sender: transfer.sender,
            agreed: sender,
          },
          'sender.outvoted',
        );
      const right = { ...transfer, sender };
      block.transfers[index] = right;
      corrected.push(right);
    }
    return corrected;
  }

  return (blocks) => {
    const byNumber = new Map(blocks.map((block) => [block.header.number, block]));
    const proved = new Set<Transfer>();

    function needsProof({ transfer, block }: MatchedTransfer): boolean {
      if (proved.has(transfer) || transfer.kind === 'token') return false;
      const read = byNumber.get(block);
      if (read === undefined) return false;
      if (transfer.kind === 'internal')
        return read.unconfirmed !== undefined && voters.agreement().tracingNodes > 1;
      // Without proof nothing is known of any signature.
      if (read.senders === undefined) return false;
      const isSigned = read.senders.hashes.includes(transfer.txHash);
      return isSigned ? read.senders.signed !== undefined : voters.agreement().quorum > 1;
    }

    return {
      findUnproved: (matched) => matched.filter(needsProof),
      async prove(unproved, signal) {
        const natives = unproved.filter(({ transfer }) => transfer.kind === 'transaction');
        const signed: Signed[] = [];
        const unsigned = new Set<ReadBlock>();
        for (const matched of natives) {
          const block = byNumber.get(matched.block);
          const bytes = block?.senders && findSigned(block.senders, matched.transfer.txHash);
          if (bytes !== undefined) signed.push({ matched, bytes });
          else if (block !== undefined) unsigned.add(block);
        }
        const forged = await findForged(signed);
        if (forged !== undefined) return forged.block;
        for (const block of unsigned)
          for (const transfer of await correctSenders(block, signal)) proved.add(transfer);
        const internals = unproved.filter(({ transfer }) => transfer.kind === 'internal');
        for (const number of new Set(internals.map(({ block }) => block))) {
          const block = byNumber.get(number);
          if (block?.unconfirmed === undefined) continue;
          const listed = { ...block.header, transactionHashes: block.unconfirmed };
          const own = block.transfers.filter(({ kind }) => kind === 'internal');
          if (!(await voters.areConfirmed(listed, own, signal))) return number;
        }
        for (const { transfer } of unproved) proved.add(transfer);
        return undefined;
      },
    };
  };
}

type Signed = { matched: MatchedTransfer; bytes: Uint8Array };
