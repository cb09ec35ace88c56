/**
 * A random chain: blocks of transfers between a few people, reorgs above the final block, and older heads that lagging
 * nodes still report.
 */
import type { Bundle, BundleTransaction } from '../../src/chain/blocks/bundle.ts';
import { encodeWord } from '../../src/core/abi.ts';
import type { Address, Hash } from '../../src/core/hex.ts';
import type { BlockHeader, Transfer } from '../../src/domain/block.ts';
import { addressOf, coin, hashOf, later } from '../kit/chain-story.ts';
import type { Random } from './random.ts';

/** A transaction by its transfers. `bundleOf` derives the form in which a node returns it. */
type SimTransaction = { hash: Hash; isFailed: boolean; transfers: Transfer[] };
export type SimBlock = { header: BlockHeader; transactions: readonly SimTransaction[] };

export type SimChain = {
  head(): SimBlock;
  /** Finds any block that was ever mined, canonical or orphaned. */
  find(hash: Hash): SimBlock | undefined;
  /** The block of a height on the branch that ends in `tip`. */
  at(tip: SimBlock, number: number): SimBlock | undefined;
  mine(): void;
  /** Replaces the newest blocks and returns their number. Mostly their transactions are mined again, now or later. */
  reorg(): number;
  /** The head of a liar's branch, which leaves the chain somewhere and continues with invented transfers. */
  lie(): SimBlock;
  isLie(hash: Hash): boolean;
  /** No block at or below this height ever changes. */
  finalNumber(): number;
  /** Older heads, of this branch or of an orphaned one, that a node may report without contradicting the final block. */
  oldHeads(): SimBlock[];
};

/** Reorgs are never deeper. The follower is configured with the same depth. */
export const FINALITY_BLOCKS = 8;
const REORG_BLOCKS_MAX = 5;
const LATE_BLOCKS_MAX = 3;
/** The greatest distance below the head at which a liar's branch leaves the chain, and by which it may lag. */
const LIE_BLOCKS_BEHIND_MAX = 12;

export const people: readonly Address[] = [1, 2, 3, 4, 5, 6].map(addressOf);

export function createChain(random: Random): SimChain {
  const blocks = new Map<Hash, SimBlock>();
  const abandoned: SimBlock[] = [];
  const lies = new Set<Hash>();
  let lieHead: SimBlock | undefined;
  let pool: SimTransaction[] = [];
  let hashCount = 0;
  let highest = 0;
  let head = append({ number: 0, parentHash: nextHash() }, []);

  function nextHash(): Hash {
    hashCount += 1;
    return hashOf(hashCount);
  }

  function append(
    { number, parentHash }: Pick<BlockHeader, 'number' | 'parentHash'>,
    transactions: SimTransaction[],
  ): SimBlock {
    const hash = nextHash();
    const block = { header: { number, hash, parentHash, minedAt: later(number * 1000) }, transactions };
    blocks.set(hash, block);
    return block;
  }

  function makeTransaction(): SimTransaction {
    const hash = nextHash();
    const isFailed = random.chance(0.1);
    const move = (kind: Transfer['kind'], ordinal: number): Transfer => ({
      kind,
      txHash: hash,
      ordinal,
      sender: random.pick(people),
      receiver: random.pick(people),
      amount: random.chance(0.1) ? 2n ** 256n - 1n : BigInt(random.between(1, 1_000_000)),
      token: kind === 'token' ? coin : undefined,
    });
    if (isFailed) return { hash, isFailed, transfers: [] };
    const own = random.chance(0.7) ? [move('transaction', 0)] : [];
    if (random.chance(0.1)) for (const one of own) one.receiver = undefined;
    const calls = random.chance(0.15) ? [move('internal', 0), move('internal', 1)] : [];
    const logs = random.chance(0.25) ? [move('token', 0), move('token', 1)] : [];
    return { hash, isFailed, transfers: [...own, ...calls, ...logs] };
  }

  /** On another branch a transaction may have other amounts, other parties, and more or fewer logs. */
  function changeOutcome({ hash, isFailed, transfers }: SimTransaction): SimTransaction {
    const logs = transfers.filter(({ kind }) => kind === 'token');
    const others = transfers.filter(({ kind }) => kind !== 'token');
    const changed = logs
      .filter(() => random.chance(0.8))
      .map((log) => (random.chance(0.5) ? { ...log, amount: BigInt(random.between(1, 3)) } : log))
      .map((log) => (random.chance(0.2) ? { ...log, receiver: random.pick(people) } : log));
    const [first] = changed;
    const repeated = first !== undefined && random.chance(0.3) ? [first] : [];
    const ordered = [...changed, ...repeated].map((log, ordinal) => ({ ...log, ordinal }));
    return { hash, isFailed, transfers: [...others, ...ordered] };
  }

  function mine(): void {
    const taken = pool.filter(() => random.chance(0.7));
    pool = pool.filter((transaction) => !taken.includes(transaction));
    const again = taken.map((transaction) => (random.chance(0.3) ? changeOutcome(transaction) : transaction));
    const news = Array.from({ length: random.between(0, 2) }, makeTransaction);
    const transactions = random.chance(0.5) ? [...news, ...again] : [...again, ...news];
    head = append({ number: head.header.number + 1, parentHash: head.header.hash }, transactions);
    highest = Math.max(highest, head.header.number);
  }

  function at(tip: SimBlock, number: number): SimBlock | undefined {
    let block: SimBlock | undefined = tip;
    while (block !== undefined && block.header.number > number) block = blocks.get(block.header.parentHash);
    return block?.header.number === number ? block : undefined;
  }

  const finalNumber = () => Math.max(0, highest - FINALITY_BLOCKS);

  /** Whether this branch contains the final block. */
  function isPossible(tip: SimBlock): boolean {
    const number = Math.min(finalNumber(), tip.header.number);
    return at(tip, number) === at(head, number);
  }

  return {
    head: () => head,
    find: (hash) => blocks.get(hash),
    at,
    mine,
    reorg() {
      const depth = Math.min(random.between(1, REORG_BLOCKS_MAX), head.header.number - finalNumber());
      const ancestor = at(head, head.header.number - depth);
      if (depth === 0 || ancestor === undefined) return 0;
      abandoned.push(head);
      const share = random.chance(0.3) ? 0 : 0.85;
      for (let dead = head; dead !== ancestor; dead = blocks.get(dead.header.parentHash) ?? ancestor)
        pool.push(...dead.transactions.filter(() => random.chance(share)));
      head = ancestor;
      for (let count = Math.max(1, depth + random.between(-1, 1)); count > 0; count -= 1) mine();
      return depth;
    },
    lie() {
      const isFarBehind =
        lieHead !== undefined && lieHead.header.number < head.header.number - LIE_BLOCKS_BEHIND_MAX;
      if (lieHead === undefined || isFarBehind || random.chance(0.1))
        lieHead =
          at(head, Math.max(0, head.header.number - random.between(0, LIE_BLOCKS_BEHIND_MAX))) ?? head;
      if (!lies.has(lieHead.header.hash) || random.chance(0.5)) {
        const { number, hash } = lieHead.header;
        lieHead = append({ number: number + 1, parentHash: hash }, [makeTransaction()]);
        lies.add(lieHead.header.hash);
      }
      return lieHead;
    },
    isLie: (hash) => lies.has(hash),
    finalNumber,
    oldHeads() {
      const { number } = head.header;
      const late = [1, LATE_BLOCKS_MAX].map((behind) => at(head, number - behind));
      return [...late, ...abandoned].filter((tip) => tip !== undefined).filter(isPossible);
    },
  };
}

/** keccak256("Transfer(address,address,uint256)"), EIP-20. */
const TRANSFER_TOPIC: Hash = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';

/** The block as the follower's nodes return it. */
export function bundleOf({ header, transactions }: SimBlock): Bundle {
  return { header, proved: true, traced: true, transactions: transactions.map(tellTransaction) };
}

function tellTransaction({ hash, isFailed, transfers }: SimTransaction): BundleTransaction {
  const own = transfers.find(({ kind }) => kind === 'transaction');
  const [somebody = addressOf(9)] = people;
  return {
    hash,
    from: own?.sender ?? somebody,
    to: own !== undefined && own.receiver === undefined ? 'creation' : (own?.receiver ?? somebody),
    value: own?.amount ?? (isFailed ? 7n : 0n),
    succeeded: !isFailed,
    calls: transfers.flatMap(({ kind, sender, receiver, amount }) =>
      kind === 'internal' && receiver !== undefined ? [{ sender, receiver, amount }] : [],
    ),
    logs: transfers.flatMap(({ kind, sender, receiver, amount }) =>
      kind === 'token' && receiver !== undefined
        ? [{ address: coin, topics: [TRANSFER_TOPIC, word(sender), word(receiver)], data: word(amount) }]
        : [],
    ),
  };
}

/** 32 bytes. */
const word = (value: Address | bigint): Hash => `0x${encodeWord(value)}`;
