/**
 * The head of the chain by the votes of the nodes (docs/explanation/quorum.md): the highest block whose hash a quorum
 * names.
 */
import type { Clock } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import type { BlockHeader, BlockId } from '../../domain/block.ts';
import { credibleCount, type Quorum } from '../../domain/quorum.ts';
import { gather } from './ask-several.ts';
import { corroborate, hear, hearBelow, isNamedBy, reachedBy, VOTE_MS_MAX, type Voice } from './head-votes.ts';
import { headPatienceMs, isOverdue, isReady, isSound, type Node } from './node.ts';
import { createProgress } from './progress.ts';

export type HeadReader = {
  /**
   * Asks the nodes and returns the highest block with a quorum. It does not wait for late nodes once a quorum
   * names a new head. `announced` is the height of a block that a node has just pushed: nodes that lack it
   * are asked again.
   * @throws Fault `inconsistent` without a quorum, `unavailable` when no node answers, `conflict` when all
   * are on another chain.
   */
  read(signal: AbortSignal, announced?: number): Promise<BlockId>;
  /** Takes a head that the node pushed as its vote. */
  hear(node: Node, head: BlockHeader): void;
  /** A head above the last one for which the votes suffice already; undefined when the nodes must be asked. */
  news(): BlockId | undefined;
  /** The last head; undefined before the first. */
  served(): BlockId | undefined;
  /** The votes that count at the moment. */
  voices(): Voice[];
  /** Whether the nodes that were asked last had no quorum. */
  isHeld(): boolean;
  /** Since when each head has been below this height, if that lasts. */
  belowSince(number: number): Date | undefined;
  /** Why the head does not move: a node that the quorum needs is behind, or owes an answer. */
  stalled(): { message: string; since: Date } | undefined;
  /** Which nodes are ahead of a head that has not moved for long: too few to be followed. */
  ahead(): { message: string; since: Date } | undefined;
  /** Why the nodes' newest blocks are not followed, while they disagree about them. */
  dispute(): { message: string; since: Date } | undefined;
};

type HeadReaderOptions = {
  /** In order of preference. */
  nodes: readonly Node[];
  quorum: Quorum<Node>;
  clock: Clock;
  /** Reads one node's head. */
  ask(node: Node, signal: AbortSignal): Promise<BlockHeader>;
  /** Reads the hash that the node has at a height; undefined where it has none. */
  askAt(node: Node, number: number, signal: AbortSignal): Promise<Hash | undefined>;
};

/**
 * After a push the lagging nodes are asked again after these pauses: propagation takes a fraction of a
 * second.
 */
const AFTER_PUSH_MS = [25, 50, 100, 200];
/** Two honest nodes may be on sibling blocks until the next one. /status shows what lasts longer. */
const DISPUTE_MS_MIN = 2_000;
/** A node that has the next block a little earlier than the others is normal. */
const AHEAD_BLOCKS_MIN = 2;
/** How long the other nodes wait for a node's block at a lower head. */
const BELOW_MS_MAX = 1_000;

export function createHeadReader({ nodes, quorum, clock, ask, askAt }: HeadReaderOptions): HeadReader {
  let served: BlockId | undefined;
  /** The last one whose nodes are known to be on this chain. */
  let identified: BlockId | undefined;
  /** No node has been asked until the first head. */
  let isHeld = true;
  const progress = createProgress(clock);
  let dispute: { message: string; since: Date } | undefined;
  const nowMs = () => clock.now().getTime();

  const isVote = ({ voice }: Node) => voice !== undefined && nowMs() - voice.atMs <= VOTE_MS_MAX;
  const voices = () => nodes.filter(isVote).flatMap(({ voice }) => voice ?? []);
  const find = () => corroborate(voices(), quorum.needed(), served);

  /** Nodes that rest, are limited or still owe an answer are left out, unless a quorum needs them. */
  function askable(): readonly Node[] {
    const now = nowMs();
    const free = nodes.filter((node) => !isOverdue(node, now));
    const ready = free.filter((node) => isReady(node, now));
    if (ready.length >= quorum.needed() && !isHeld) return ready;
    return free.length > 0 ? free : nodes;
  }

  function note(node: Node, head: BlockHeader): void {
    node.head = head;
    node.voice = hear(node.voice, head, nowMs());
    node.blocksBehind = progress.blocksBehind(head.number);
    quorum.heard(node);
  }

  async function askNode(node: Node, signal: AbortSignal): Promise<void> {
    node.headAskedAt ??= nowMs();
    try {
      note(node, await ask(node, signal));
    } catch (error) {
      node.voice = undefined;
      if (error instanceof Fault && error.code === 'conflict' && node.isUnsure) {
        node.head = undefined;
        node.isUnsure = false;
      }
      throw error;
    } finally {
      node.headAskedAt = undefined;
    }
  }

  /**
   * Resolves when all have answered, when a quorum names a new head, or when the others have waited long
   * enough.
   */
  async function askEach(asked: readonly Node[], signal: AbortSignal): Promise<Map<Node, Fault>> {
    const pending = new Set(asked);
    const faults = new Map<Node, Fault>();
    const decided = Promise.withResolvers<void>();
    const patience = new AbortController();
    let isPatient = true;
    for (const node of asked) {
      askNode(node, signal)
        .catch((error: unknown) => {
          if (error instanceof Fault) faults.set(node, error);
          else decided.reject(error);
        })
        .finally(() => {
          pending.delete(node);
          if (pending.size === 0 || isNews(find())) return decided.resolve();
          if (!isPatient || pending.size === asked.length) return;
          isPatient = false;
          const graceMs = Math.max(...Array.from(pending, headPatienceMs));
          clock.wait(graceMs, patience.signal).then(decided.resolve, decided.reject);
        });
    }
    try {
      await decided.promise;
    } finally {
      patience.abort();
    }
    return faults;
  }

  function isNews(head: BlockId | undefined): head is BlockId {
    if (head === undefined || served === undefined) return head !== undefined;
    return head.number > served.number || (head.number === served.number && head.hash !== served.hash);
  }

  /** Where heads differ by two blocks or more: asks the higher nodes for their block at the lower head. */
  async function compareBelow(signal: AbortSignal): Promise<void> {
    const height = reachedBy(voices(), quorum.needed());
    if (height === undefined || (find()?.number ?? -1) >= height) return;
    const higher = nodes.filter(
      (node) => isVote(node) && (node.voice?.head.number ?? 0) > height && !node.voice?.hashes.has(height),
    );
    const ask = (node: Node, abort: AbortSignal) => askAt(node, height, abort);
    const answers = await gather({ clock, signal, voters: higher, ask, ms: BELOW_MS_MAX });
    for (const [node, hash] of answers)
      if (typeof hash === 'string' && node.voice !== undefined)
        node.voice = hearBelow(node.voice, { number: height, hash });
  }

  function serve(head: BlockId): BlockId {
    served = head;
    if (!nodes.some((node) => isVote(node) && node.isUnsure)) identified = head;
    progress.noteHead(head.number);
    const [witness] = voices().filter((voice) => isNamedBy(voice, head));
    for (const node of nodes.filter(isVote)) {
      const number = Math.min(node.voice?.head.number ?? 0, head.number);
      const hash = node.voice?.hashes.get(number);
      const corroboratedHash = witness?.hashes.get(number);
      const isNew = node.outvoted?.number !== number || node.outvoted.hash !== hash;
      if (hash === undefined || corroboratedHash === undefined || hash === corroboratedHash || !isNew)
        continue;
      node.outvotedCount += 1;
      node.outvoted = { number, hash, corroboratedHash, at: clock.now() };
    }
    return head;
  }

  /** Notes how far the chain is, and which nodes stay behind it. */
  function noteProgress(): void {
    const sound = nodes.filter((node) => isVote(node) && isSound(node)).flatMap(({ voice }) => voice ?? []);
    const reach = reachedBy(sound, credibleCount(nodes.length));
    if (reach !== undefined) progress.noteReach(reach);
    for (const node of nodes) node.blocksBehind = node.head && progress.blocksBehind(node.head.number);
  }

  function behind(): { message: string; since: Date } | undefined {
    const since = progress.unmovedSince();
    if (served === undefined || since === undefined) return undefined;
    if (progress.blocksBehind(served.number) === undefined) return undefined;
    const each = nodes.flatMap(({ rpc, head, blocksBehind }) =>
      blocksBehind === undefined ? [] : `${rpc.name} is at block ${head?.number}, ${blocksBehind} behind`,
    );
    const message = `no ${quorum.needed()} of ${nodes.length} nodes name a block above ${served.number}: ${each.join('; ')}. Repair or replace the nodes that are behind`;
    return { message, since };
  }

  function ahead(): { message: string; since: Date } | undefined {
    const since = progress.unmovedSince();
    if (served === undefined || since === undefined) return undefined;
    const from = served.number + AHEAD_BLOCKS_MIN;
    const higher = nodes.filter(
      (node) => isVote(node) && isSound(node) && (node.voice?.head.number ?? 0) >= from,
    );
    if (higher.length === 0) return undefined;
    const each = higher.map(({ rpc, voice }) => `${rpc.name} names block ${voice?.head.number}`);
    const message = `the head has stayed at block ${served.number}, which ${quorum.needed()} of ${nodes.length} nodes name, while ${each.join('; ')}: if the chain is there, repair or replace the other nodes; if not, this one`;
    return { message, since };
  }

  function unanswered(): { message: string; since: Date } | undefined {
    const oweSince = ({ headAskedAt }: Node) =>
      headAskedAt !== undefined && nowMs() - headAskedAt > VOTE_MS_MAX ? headAskedAt : undefined;
    // Where one of two nodes is followed alone, the other one, which rests, would not answer either.
    const silent = quorum.silent()?.voter;
    const canAnswer = nodes.filter((node) => node !== silent && oweSince(node) === undefined);
    if (Math.max(canAnswer.length, voices().length) >= quorum.needed()) return undefined;
    const asked = nodes.flatMap((node) => oweSince(node) ?? []);
    return { message: describe(), since: new Date(Math.min(...asked)) };
  }

  /** Enough nodes have reached a height at which no quorum has the same block. */
  function noteDispute(head: BlockId | undefined): void {
    const height = reachedBy(voices(), quorum.needed());
    const isDisputed = height !== undefined && (head?.number ?? -1) < height;
    isHeld = head === undefined || isDisputed;
    dispute = isDisputed ? { message: describe(), since: dispute?.since ?? clock.now() } : undefined;
  }

  function describe(faults: ReadonlyMap<Node, Fault> = new Map()): string {
    const each = nodes.map((node) => {
      const { rpc, voice, fault, head } = node;
      if (voice !== undefined && isVote(node))
        return `${rpc.name} names block ${voice.head.number} (${voice.head.hash})`;
      const reason = faults.get(node) ?? fault;
      const last = head === undefined ? '' : `, block ${head.number} before`;
      return `${rpc.name} gives no vote (${reason === undefined ? 'no answer' : messageOf(reason)}${last})`;
    });
    const said = each.join('; ');
    if (nodes.length === 1)
      return `${said}. Following resumes as soon as it answers: check that it runs, or add another node to chain.rpc`;
    return (
      `no ${quorum.needed()} of ${nodes.length} nodes name the same block: ${said}. ` +
      'Following resumes as soon as they do; repair or replace the nodes that are wrong or silent'
    );
  }

  return {
    served: () => served,
    voices,
    isHeld: () => isHeld,
    belowSince: progress.belowSince,
    stalled: () => behind() ?? unanswered(),
    ahead,
    dispute: () =>
      dispute !== undefined && nowMs() - dispute.since.getTime() >= DISPUTE_MS_MIN ? dispute : undefined,
    hear: note,
    news() {
      const head = find();
      if (!isNews(head)) return undefined;
      noteDispute(head);
      return serve(head);
    },
    async read(signal, announced) {
      const faults = await askEach(askable(), signal);
      for (const pauseMs of AFTER_PUSH_MS) {
        if (announced === undefined || isNews(find()) || announced <= (find()?.number ?? -1)) break;
        await clock.wait(pauseMs, signal);
        const now = nowMs();
        const lagging = askable().filter(
          (node) => (node.voice?.head.number ?? -1) < announced && !isOverdue(node, now),
        );
        if (lagging.length === 0) break;
        await askEach(lagging, signal);
      }
      for (const node of nodes) if (!isVote(node)) quorum.missed(node);
      noteProgress();
      await compareBelow(signal);
      const head = find();
      noteDispute(head);
      if (head !== undefined) return serve(head);
      if (voices().length > 0) throw new Fault('inconsistent', describe(faults));
      const foreign = nodes.flatMap(({ fault }) => (fault?.code === 'conflict' ? messageOf(fault) : []));
      if (foreign.length === nodes.length) {
        served = identified;
        throw new Fault('conflict', foreign.join('; '));
      }
      throw new Fault('unavailable', describe(faults));
    },
  };
}
