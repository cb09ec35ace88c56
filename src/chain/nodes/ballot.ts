/**
 * Asks nodes, a few at a time, until enough of them have named the same block.
 */
import { startAbort } from '../../core/abort.ts';
import { firstOrLate } from '../../core/bounded-wait.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault } from '../../core/fault.ts';
import type { Hash } from '../../core/hex.ts';
import { mostNamed } from './head-votes.ts';

type Ballot<Voter, Vote> = {
  /** Adds a vote that is already known, so the voter isn't asked. */
  add(voter: Voter, vote: Vote | undefined): void;
  /** Asks the next `count` voters. */
  ask(count: number): void;
  /** The votes, as soon as `quorum` voters agree (on `claim`, if given) or no voter is left to ask. */
  settle(quorum: number, claim?: Hash): Promise<ReadonlyMap<Voter, Vote | undefined>>;
  /** Aborts the requests that are still under way. */
  close(): void;
};

type BallotOptions<Voter, Vote> = {
  clock: Clock;
  signal: AbortSignal;
  /** In the order in which they are asked. */
  voters: readonly Voter[];
  /** Undefined if the voter doesn't know the block. A Fault counts as no vote. */
  vote(voter: Voter, signal: AbortSignal): Promise<Vote | undefined>;
  /** How long a voter may take before the next one is asked too. */
  lateMs(voter: Voter): number;
};

export function openBallot<Voter, Vote extends { hash: Hash }>(
  options: BallotOptions<Voter, Vote>,
): Ballot<Voter, Vote> {
  const { clock } = options;
  const work = startAbort(options.signal);
  const waiting = [...options.voters];
  const pending = new Map<Voter, Promise<void>>();
  const votes = new Map<Voter, Vote | undefined>();
  let bug: { error: unknown } | undefined;

  function ask(count: number): void {
    for (const voter of waiting.splice(0, count)) {
      const asked = options.vote(voter, work.signal).then(
        (vote) => void votes.set(voter, vote),
        (error: unknown) => {
          if (!(error instanceof Fault)) bug ??= { error };
          votes.set(voter, undefined);
        },
      );
      pending.set(
        voter,
        asked.finally(() => pending.delete(voter)),
      );
    }
  }

  /** Waits for an answer, or until one is late and another voter can be asked. */
  async function next(): Promise<void> {
    if (waiting.length === 0 && !work.signal.aborted) return Promise.race(pending.values());
    const lateMs = Math.max(...Array.from(pending.keys(), options.lateMs));
    const outcome = await firstOrLate({ clock, signal: work.signal }, [...pending.values()], lateMs);
    if (outcome === 'late') ask(1);
  }

  return {
    add(voter, vote) {
      const index = waiting.indexOf(voter);
      if (index !== -1) waiting.splice(index, 1);
      votes.set(voter, vote);
    },
    ask,
    async settle(quorum, claim) {
      for (;;) {
        if (bug !== undefined) throw bug.error;
        if (options.signal.aborted) throw new Fault('unavailable', 'these votes are no longer wanted');
        const named = [...votes.values()].flatMap((vote) => vote?.hash ?? []);
        const relevant = claim === undefined ? named : named.filter((hash) => hash === claim);
        if (mostNamed(relevant, quorum) !== undefined) return votes;
        const best = Math.max(0, ...relevant.map((hash) => relevant.filter((one) => one === hash).length));
        ask(Math.max(0, quorum - best - pending.size));
        if (pending.size === 0) return votes;
        await next();
      }
    },
    close() {
      work.abort();
      work.release();
    },
  };
}
