/**
 * Elects the leading follower and the process that reads prices, by advisory locks of the session.
 */
import { Fault } from '../core/fault.ts';
import type { Session } from '../store/db/db.ts';
import type { SessionKeeper } from '../store/db/session-keeper.ts';

export type Elections = {
  /** Tries to take the leading follower's lock; `isHeld` says later whether `session` still holds it. */
  follower(): Promise<{ isLeader: boolean; isHeld(): boolean; session: Session }>;
  /** Gives the leading follower's lock back. Before it is free, `isHeld` is false. */
  resign(): Promise<void>;
  prices(): Promise<boolean>;
};

/** Advisory lock space of leader elections, with one key for the follower and one for price feeds. */
const ELECTION_LOCK_SPACE = 0x6362_0004;
const FOLLOWER_ELECTION = 1;
const PRICES_ELECTION = 2;

export function createElections(sessions: SessionKeeper): Elections {
  let elected: Session | undefined;
  return {
    async follower() {
      const session = await sessions.current();
      elected = session;
      const isLeader = await session.tryLock(ELECTION_LOCK_SPACE, FOLLOWER_ELECTION);
      return { isLeader, isHeld: () => elected === session && !session.lost.aborted, session };
    },
    async resign() {
      const session = elected;
      elected = undefined;
      try {
        await session?.unlock(ELECTION_LOCK_SPACE, FOLLOWER_ELECTION);
      } catch (error) {
        // The lock ends with the connection.
        if (!(error instanceof Fault)) throw error;
      }
    },
    prices: async () => (await sessions.current()).tryLock(ELECTION_LOCK_SPACE, PRICES_ELECTION),
  };
}
