/**
 * Shares the concurrent attempts at one origin among the watchers with receivers there, so that none takes the last slots.
 */
type OriginShares<Owner> = {
  /** Whether this owner may start another attempt: it must have fewer under way than remain free. */
  hasRoom(origin: string, owner: Owner): boolean;
  /** Counts an attempt that starts (1) or ends (-1). */
  count(origin: string, owner: Owner, by: 1 | -1): void;
};

export function createOriginShares<Owner>(max: number): OriginShares<Owner> {
  const origins = new Map<string, { all: number; by: Map<Owner, number> }>();
  return {
    hasRoom(origin, owner) {
      const taken = origins.get(origin);
      return taken === undefined || (taken.by.get(owner) ?? 0) < max - taken.all;
    },
    count(origin, owner, by) {
      const taken = origins.get(origin) ?? { all: 0, by: new Map<Owner, number>() };
      const own = (taken.by.get(owner) ?? 0) + by;
      taken.all += by;
      if (own > 0) taken.by.set(owner, own);
      else taken.by.delete(owner);
      if (taken.all > 0) origins.set(origin, taken);
      else origins.delete(origin);
    },
  };
}
