/**
 * Proof of data that no hash covers, for transfers that match a watched address: the sender of a native transfer by its
 * signature or by agreement of several nodes, an internal transfer by agreement of several tracing nodes. The senders that points
 * rules use are recovered with the proof of the block; those without a signature are agreed on here.
 */
import { quantityOf } from '../chain/blocks/bundle.ts';
import type { Voters } from '../chain/nodes/unhashed-data.ts';
import { indexSenders, type SenderIndex } from '../chain/proof/block-checks.ts';
import type { Verifier } from '../chain/proof/verifier.ts';
import { parseBlock } from '../chain/rpc/parse.ts';
import { Fault } from '../core/fault.ts';
import type { Address, Hash } from '../core/hex.ts';
import type { Log } from '../core/log.ts';
import type { Transfer } from '../domain/block.ts';
import { readsSender } from '../domain/points/rules.ts';
import type { MatchedTransfer } from '../store/matching/matching.ts';
import type { ReadBlock } from './read-block.ts';

type TransferProof = {
  /** The matched transfers that need a proof and have none yet. Receipts hold token transfers, and the block's hash covers them. */
  findUnproved(matched: readonly MatchedTransfer[]): MatchedTransfer[];
  /**
   * Returns the number of a block that must be read again because the node that gave it lied about one of these transfers;
   * undefined when all are proved. Senders without a signature become those that the nodes agree on.
   * @throws Fault when too few nodes give the same answer.
   */
  prove(unproved: readonly MatchedTransfer[], signal: AbortSignal): Promise<number | undefined>;
  /**
   * Gives activities whose user is a sender without a signature the sender that the nodes agree on.
   * @throws Fault when too few nodes give the same answer.
   */
  proveActivities(signal: AbortSignal): Promise<void>;
};

type ProverOptions = {
  voters: Voters;
  recover: Verifier['recover'];
  log: Log;
};

/** Makes the proof for the blocks of one commit. */
export type TransferProver = (blocks: readonly ReadBlock[]) => TransferProof;

export function createTransferProver({ voters, recover, log }: ProverOptions): TransferProver {
  return (blocks) => {
    const blockOf = new Map(blocks.map((block) => [block.header.number, block]));
    const proved = new Set<Transfer>();
    const indexes = new Map<ReadBlock, SenderIndex>();
    /** Made when it is first needed, because most blocks have no matched transfer. */
    const sendersOf: SendersOf = (block) => {
      if (block.senders === undefined) return undefined;
      const index = indexes.get(block) ?? indexSenders(block.senders);
      indexes.set(block, index);
      return index;
    };

    /** Proves native transfers. Returns the block of a forged sender. */
    async function proveSenders(
      matched: readonly MatchedTransfer[],
      signal: AbortSignal,
    ): Promise<number | undefined> {
      const signed: Signed[] = [];
      const unsigned = new Set<ReadBlock>();
      for (const one of matched) {
        const block = blockOf.get(one.block);
        const bytes = block && sendersOf(block)?.findSigned(one.transfer.txHash);
        if (bytes !== undefined) signed.push({ matched: one, bytes });
        else if (block !== undefined) unsigned.add(block);
      }
      const forged = await findForged({ recover, log }, signed);
      if (forged !== undefined) return forged.block;
      for (const block of unsigned)
        for (const transfer of await correctSenders({ voters, log, sendersOf }, block, signal))
          proved.add(transfer);
      return undefined;
    }

    /** Returns the first of these blocks whose internal transfers the quorum does not confirm. */
    async function findUnconfirmed(
      numbers: ReadonlySet<number>,
      signal: AbortSignal,
    ): Promise<number | undefined> {
      for (const number of numbers) {
        const block = blockOf.get(number);
        if (block?.unconfirmed === undefined) continue;
        const listed = { ...block.header, transactionHashes: block.unconfirmed };
        const own = block.transfers.filter(({ kind }) => kind === 'internal');
        if (!(await voters.areConfirmed(listed, own, signal))) return number;
      }
      return undefined;
    }

    return {
      findUnproved: (matched) =>
        matched.filter(({ transfer, block }) => {
          const read = blockOf.get(block);
          return (
            read !== undefined && !proved.has(transfer) && needsProof({ voters, sendersOf }, transfer, read)
          );
        }),
      async prove(unproved, signal) {
        const natives = unproved.filter(({ transfer }) => transfer.kind === 'transaction');
        const internals = unproved.filter(({ transfer }) => transfer.kind === 'internal');
        const liedAbout =
          (await proveSenders(natives, signal)) ??
          (await findUnconfirmed(new Set(internals.map(({ block }) => block)), signal));
        if (liedAbout !== undefined) return liedAbout;
        for (const { transfer } of unproved) proved.add(transfer);
        return undefined;
      },
      async proveActivities(signal) {
        for (const block of blocks) await correctActivities({ voters, log }, block, signal);
      },
    };
  };
}

/** The senders of this block. Undefined with proof turned off, because then no signatures were read. */
type SendersOf = (block: ReadBlock) => SenderIndex | undefined;

function needsProof(
  { voters, sendersOf }: { voters: Voters; sendersOf: SendersOf },
  { kind, txHash }: Transfer,
  block: ReadBlock,
): boolean {
  if (kind === 'token') return false;
  if (kind === 'internal') return block.unconfirmed !== undefined && voters.agreement().tracingNodes > 1;
  const index = sendersOf(block);
  if (index === undefined) return false;
  return index.has(txHash) ? block.senders?.signed !== undefined : voters.agreement().quorum > 1;
}

type Signed = { matched: MatchedTransfer; bytes: Uint8Array };

/** Finds a transfer whose sender, as the node gave it, is not the signer. */
async function findForged(
  { recover, log }: Pick<ProverOptions, 'recover' | 'log'>,
  signed: readonly Signed[],
): Promise<MatchedTransfer | undefined> {
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

/** Gives the unsigned native transfers of the block the senders that the nodes agree on. Returns these transfers. */
async function correctSenders(
  { voters, log, sendersOf }: Pick<ProverOptions, 'voters' | 'log'> & { sendersOf: SendersOf },
  block: ReadBlock,
  signal: AbortSignal,
): Promise<Transfer[]> {
  const agreedSender = await agreeOnSenders({ voters, log }, block, signal);
  const corrected: Transfer[] = [];
  for (const [index, transfer] of block.transfers.entries()) {
    const { kind, txHash } = transfer;
    if (kind !== 'transaction' || sendersOf(block)?.has(txHash) === true) continue;
    const right = { ...transfer, sender: agreedSender(transfer) };
    block.transfers[index] = right;
    corrected.push(right);
  }
  return corrected;
}

async function correctActivities(
  { voters, log }: Pick<ProverOptions, 'voters' | 'log'>,
  block: ReadBlock,
  signal: AbortSignal,
): Promise<void> {
  const { activities, senders } = block;
  const reading = activities.filter(({ listener }) => readsSender(listener));
  // With proof turned off, no signatures were read.
  if (reading.length === 0 || senders === undefined || voters.agreement().quorum === 1) return;
  const recovered = new Set<string>(senders.hashes);
  const unsigned = new Set(reading.filter(({ txHash }) => !recovered.has(txHash)));
  if (unsigned.size === 0) return;
  const agreedSender = await agreeOnSenders({ voters, log }, block, signal);
  block.activities = activities.map((activity) =>
    unsigned.has(activity) ? { ...activity, sender: agreedSender(activity) } : activity,
  );
}

/** Returns the sender that a quorum of the nodes names for a transaction of this block. */
async function agreeOnSenders(
  { voters, log }: Pick<ProverOptions, 'voters' | 'log'>,
  { header: { number, hash } }: ReadBlock,
  signal: AbortSignal,
): Promise<(claim: { txHash: Hash; sender: Address }) => Address> {
  const senders = await voters.agree(
    [{ method: 'eth_getBlockByNumber', params: [quantityOf(number), true] }],
    ([answer], nodeName) => {
      if (answer?.ok !== true || answer.result === null)
        throw new Fault('unavailable', `${nodeName} does not have block ${number}`);
      const block = parseBlock(answer.result);
      if (block.header.hash !== hash)
        throw new Fault(
          'unavailable',
          `${nodeName} has ${block.header.hash} as block ${number}, not ${hash}`,
        );
      return block.transactions.map((transaction) => [transaction.hash, transaction.from] as const);
    },
    signal,
    JSON.stringify,
  );
  const senderOf = new Map(senders);
  return ({ txHash, sender }) => {
    const agreed = senderOf.get(txHash) ?? sender;
    if (agreed !== sender)
      log.warn({ block: number, transaction: txHash, sender, agreed }, 'sender.outvoted');
    return agreed;
  };
}
