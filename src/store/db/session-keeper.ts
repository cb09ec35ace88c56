/**
 * Keeps one Session open. After it is lost, the next caller gets a new one that listens to the same channels.
 */
import type { Database, Session } from './db.ts';

export type SessionKeeper = {
  /** The open session. @throws Fault `unavailable` while the database can't be reached. */
  current(): Promise<Session>;
  close(): Promise<void>;
};

export function createSessionKeeper(
  database: Database,
  channels: Readonly<Record<string, (payload: string) => void>>,
): SessionKeeper {
  let opening: Promise<Session> | undefined;
  let session: Session | undefined;

  async function open(): Promise<Session> {
    const next = await database.session();
    try {
      for (const [channel, onNotify] of Object.entries(channels)) await next.listen(channel, onNotify);
    } catch (error) {
      await next.close();
      throw error;
    }
    session = next;
    return next;
  }

  return {
    async current() {
      if (session !== undefined && !session.lost.aborted) return session;
      opening ??= open().finally(() => {
        opening = undefined;
      });
      return opening;
    },
    async close() {
      await opening?.catch(() => {});
      await session?.close();
    },
  };
}
