/**
 * Determines from heartbeats which processes of the deployment run.
 *
 * A process counts as silent from the moment at which this process last saw a new heartbeat, measured with a clock that never
 * steps. Only the first look uses the age by the database's clock. Time in which this process didn't look, because it was paused
 * or the database was down, counts for at most GAP_MS_MAX, so it doesn't make other processes seem lost.
 */
import type { Clock } from '../core/clock.ts';
import type { StoredProcess } from '../store/deployment/processes.ts';

/** How often each process writes its heartbeat. */
export const HEARTBEAT_MS = 2_000;
/** No other process can read the embedded database, and its log grows with each write. */
export const EMBEDDED_HEARTBEAT_MS = 30_000;
/** A process that has been silent for this long is lost. A role that no process has had for this long is missing. */
export const LOST_MS = 10_000;
const GAP_MS_MAX = 2 * HEARTBEAT_MS;

export type SeenProcess = StoredProcess & {
  state: 'running' | 'stopped' | 'failed' | 'lost';
  /** Since its last heartbeat. */
  silentMs: number;
  /** Since it was last the leading follower; infinite if this process never saw it lead. */
  leadMs: number;
  /** How long it has led without a pause; infinite if it doesn't lead, or led already at the first look. */
  leadingMs: number;
};

type ProcessWatch = {
  /**
   * Compares a new reading of the stored processes with the last one. While this process can't store its own heartbeat
   * (`isSilent`), the silence of the others says nothing, so the time since the last reading doesn't count.
   */
  note(processes: readonly StoredProcess[], options?: { isSilent: boolean }): void;
  /** The processes of the last reading. */
  seen(): readonly SeenProcess[];
  /** How long this process has looked. */
  watchedMs(): number;
  /** The same since this process last paused, or couldn't store its heartbeat. */
  unbrokenMs(): number;
};

type Track = { beat: number; leads: boolean; silentMs: number; leadMs: number; leadingMs: number };

export function createProcessWatch(clock: Pick<Clock, 'steadyMs'>, lostMs = LOST_MS): ProcessWatch {
  let tracks: Map<string, Track> | undefined;
  let last: readonly StoredProcess[] = [];
  let readMs = clock.steadyMs();
  let watchedMs = 0;
  let unbrokenMs = 0;

  function follow({ id, beat, ageMs, follower }: StoredProcess, gapMs: number): Track {
    const known = tracks?.get(id);
    if (known !== undefined && beat <= known.beat)
      return {
        ...{ beat: known.beat, leads: known.leads, silentMs: known.silentMs + gapMs },
        ...{ leadMs: known.leadMs + gapMs, leadingMs: known.leadingMs + gapMs },
      };
    // A heartbeat that is new to this process came after its last look.
    const silentMs = Math.min(Math.max(ageMs, 0), known === undefined ? Infinity : gapMs);
    const leads = follower?.leads === true;
    const leadMs = leads ? silentMs : (known?.leadMs ?? Infinity) + gapMs;
    const isNew = leads && known?.leads !== true && tracks !== undefined;
    const leadingMs = isNew ? silentMs : leads ? (known?.leadingMs ?? Infinity) + gapMs : Infinity;
    return { beat, leads, silentMs, leadMs, leadingMs };
  }

  return {
    note(processes, { isSilent } = { isSilent: false }) {
      const nowMs = clock.steadyMs();
      const pauseMs = nowMs - readMs;
      const gapMs = isSilent ? 0 : Math.min(pauseMs, GAP_MS_MAX);
      readMs = nowMs;
      watchedMs += gapMs;
      unbrokenMs = isSilent || pauseMs >= LOST_MS ? 0 : unbrokenMs + gapMs;
      tracks = new Map(processes.map((one) => [one.id, follow(one, gapMs)]));
      last = processes;
    },
    seen: () =>
      last.map((one) => {
        const { silentMs = 0, leadMs = Infinity, leadingMs = Infinity } = tracks?.get(one.id) ?? {};
        return { ...one, state: stateOf(one, silentMs, lostMs), silentMs, leadMs, leadingMs };
      }),
    watchedMs: () => watchedMs,
    unbrokenMs: () => unbrokenMs,
  };
}

function stateOf(one: StoredProcess, silentMs: number, lostMs: number): SeenProcess['state'] {
  if (one.isStopped) return one.isFailed ? 'failed' : 'stopped';
  return silentMs >= lostMs ? 'lost' : 'running';
}
