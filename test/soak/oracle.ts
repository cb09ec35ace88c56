/**
 * The oracle of the soak: what receivers must and may have received, from the chain and from what the API answered to changes of
 * watched addresses. Changes and commits overlap, so a transfer is *due*, *allowed* or neither. It knows no code of src/.
 */
import { type ChainBlock, type ChainTransfer, contentOf } from '../faults/oracle.ts';

/** Times are those of `performance.now()` in the soak's process. */
type Period = { startedAt: number; endedAt: number };

/** What a watched address wants from some change on. Undefined: it is deleted. */
type Wish = { watchCoin: boolean; watchToken: boolean } | undefined;

/** A block that was on the chain at some time. It was committed after `minedAt`, and before `storedAt` if that is known. */
export type SeenBlock = ChainBlock & { minedAt: number; storedAt?: number };

/** A change of a watched address, with the time of the request and of its answer. The first one creates it. */
export type Change = Period & { wish: Wish; movesUrl?: true };
export type WatchedRecord = { id: string; address: string; changes: readonly Change[] };

/** A webhook that arrived. `isTaken`: it was answered with a 2xx. */
export type Arrival = { id: number; record: string; content: string; at: number; isTaken: boolean };

/** A strike after which a webhook that was under way may come again. */
export type Strike = Period & { name: string };

type SoakVerdict = {
  blocks: number;
  transfers: number;
  /** Contents of due webhooks that no receiver has taken. */
  lost: string[];
  /** Contents that came under more ids than there are transfers. */
  doubled: string[];
  /** Contents that nothing on the chain allows. */
  invented: string[];
  /** Webhooks that came again after a 2xx, with nothing that explains it. */
  unexplained: { id: number; text: string }[];
  /** Those that a strike or a new URL explains. */
  repeated: number;
};

/** An attempt takes 10 s at most. */
const UNDER_WAY_MS_MAX = 15_000;

type SoakOracle = {
  /** Judges the blocks since the last call, which are final from now on. `blocks` are all that were ever on the chain. */
  judge(seen: {
    blocks: readonly SeenBlock[];
    /** Hashes of the canonical chain. */
    canonical: ReadonlySet<string>;
    records: readonly WatchedRecord[];
    arrivals: readonly Arrival[];
    strikes: readonly Strike[];
  }): SoakVerdict;
};

export function createSoakOracle(): SoakOracle {
  /** How often each content was allowed by one block. A transfer can be in several blocks, of which one is canonical. */
  const allowed = new Map<string, number>();
  const idsOf = new Map<string, Set<number>>();
  const takenIdsOf = new Map<string, Set<number>>();
  const lastTaken = new Map<number, number>();
  return {
    judge({ blocks, canonical, records, arrivals, strikes }) {
      const recordsAt = Map.groupBy(records, ({ address }) => address.toLowerCase());
      const due = new Map<string, number>();
      let transfers = 0;
      for (const block of blocks) {
        const allowedHere = new Map<string, number>();
        for (const transfer of block.transfers)
          for (const record of new Set(transfer.sides.flatMap((side) => recordsAt.get(lower(side)) ?? []))) {
            const wanted = isWanted(record, block, transfer);
            if (wanted === 'no') continue;
            const { hash, type, sides, amount, asset } = transfer;
            const content = contentOf(record.id, hash, type, ...sides, amount, asset);
            add(allowedHere, content);
            if (wanted === 'maybe' || !canonical.has(block.hash)) continue;
            transfers += 1;
            add(due, content);
          }
        for (const [content, count] of allowedHere)
          allowed.set(content, Math.max(count, allowed.get(content) ?? 0));
      }

      const recordOf = new Map(records.map((record) => [record.id, record]));
      const unexplained: SoakVerdict['unexplained'] = [];
      let repeated = 0;
      for (const { id, record, content, at, isTaken } of arrivals) {
        addTo(idsOf, content, id);
        const takenAt = lastTaken.get(id);
        if (takenAt !== undefined) {
          const moves = recordOf.get(record)?.changes.filter(({ movesUrl }) => movesUrl) ?? [];
          const isExplained = [...strikes, ...moves].some(
            ({ startedAt, endedAt }) =>
              startedAt <= at && takenAt <= endedAt && takenAt >= startedAt - UNDER_WAY_MS_MAX,
          );
          if (isExplained) repeated += 1;
          else
            unexplained.push({ id, text: `${id} ${Math.round(at - takenAt)} ms after its 2xx: ${content}` });
        }
        if (!isTaken) continue;
        lastTaken.set(id, at);
        addTo(takenIdsOf, content, id);
      }
      return {
        blocks: blocks.filter(({ hash }) => canonical.has(hash)).length,
        transfers,
        lost: [...due].flatMap(([content, count]) =>
          (takenIdsOf.get(content)?.size ?? 0) < count ? content : [],
        ),
        doubled: [...new Set(arrivals.map(({ content }) => content))].filter(
          (content) => allowed.has(content) && (idsOf.get(content)?.size ?? 0) > (allowed.get(content) ?? 0),
        ),
        invented: arrivals.flatMap(({ content }) => (allowed.has(content) ? [] : content)),
        unexplained,
        repeated,
      };
    },
  };
}

/**
 * Whether the record wants the transfer, under each wish that it may have had when the block was committed. A deletion cancels
 * what is still waiting, so a deleted record has no due webhooks.
 */
function isWanted(
  { changes }: WatchedRecord,
  { minedAt, storedAt = Number.POSITIVE_INFINITY }: SeenBlock,
  { type }: ChainTransfer,
): 'yes' | 'maybe' | 'no' {
  const wants = (wish: Wish) =>
    wish !== undefined && (type === 'COIN_TRANSFER' ? wish.watchCoin : wish.watchToken);
  const before = { wish: undefined, startedAt: Number.NEGATIVE_INFINITY };
  const possible = [before, ...changes].flatMap(({ wish, startedAt }, index) => {
    const next = changes[index];
    const isOver = next !== undefined && next.endedAt < minedAt;
    return startedAt < storedAt && !isOver ? wants(wish) : [];
  });
  if (possible.every((is) => !is)) return 'no';
  const isDeleted = changes.some(({ wish }) => wish === undefined);
  return possible.every(Boolean) && !isDeleted ? 'yes' : 'maybe';
}

const lower = (address: string | null): string => address?.toLowerCase() ?? '';

function add(counts: Map<string, number>, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

function addTo(sets: Map<string, Set<number>>, key: string, id: number): void {
  const ids = sets.get(key) ?? new Set();
  sets.set(key, ids.add(id));
}
