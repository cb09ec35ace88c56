/**
 * How many attempts may be under way at once in this process: in all, to each receiver, and, among them, those that
 * will probably hang, so that dead receivers never take what living ones need.
 */

/** Promising: a first attempt where the receiver answers. Doubtful: a retry, or anything where it does not. */
export type SlotKind = 'promising' | 'doubtful';

export type Slots = {
  /** Takes a slot; false when none is free, and then `onFree` is called once, in turn with all that wait. */
  tryTake(origin: string, kind: SlotKind, onFree: () => void): boolean;
  /** Gives a slot back. */
  give(origin: string, kind: SlotKind): void;
  /** Stops waiting. */
  leave(origin: string, onFree: () => void): void;
};

export type SlotLimits = { all: number; doubtful: number; perOrigin: number };

type Queue = Set<() => void>;
type Host = { taken: number; waiting: Queue };

/** Slots under these limits; `doubtful` below `all`. */
export function createSlots(limits: SlotLimits): Slots {
  const hosts = new Map<string, Host>();
  const waiting: Record<SlotKind, Queue> = { promising: new Set(), doubtful: new Set() };
  let taken = 0;
  let doubtful = 0;

  function queueFor(host: Host, kind: SlotKind): Queue | undefined {
    if (host.taken >= limits.perOrigin) return host.waiting;
    if (taken >= limits.all || (kind === 'doubtful' && doubtful >= limits.doubtful)) return waiting[kind];
    return undefined;
  }

  return {
    tryTake(origin, kind, onFree) {
      const host = hosts.get(origin) ?? { taken: 0, waiting: new Set() };
      const queue = queueFor(host, kind);
      if (queue !== undefined) {
        queue.add(onFree);
        return false;
      }
      hosts.set(origin, host);
      host.taken += 1;
      taken += 1;
      if (kind === 'doubtful') doubtful += 1;
      return true;
    },
    give(origin, kind) {
      taken -= 1;
      if (kind === 'doubtful') doubtful -= 1;
      const host = hosts.get(origin);
      if (host !== undefined) {
        host.taken -= 1;
        callFirst(host.waiting);
        if (host.taken === 0 && host.waiting.size === 0) hosts.delete(origin);
      }
      callFirst(waiting.promising);
      if (doubtful < limits.doubtful) callFirst(waiting.doubtful);
    },
    leave(origin, onFree) {
      hosts.get(origin)?.waiting.delete(onFree);
      waiting.promising.delete(onFree);
      waiting.doubtful.delete(onFree);
    },
  };
}

function callFirst(queue: Queue): void {
  const [first] = queue;
  if (first === undefined) return;
  queue.delete(first);
  first();
}
