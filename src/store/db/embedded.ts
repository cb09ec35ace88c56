/**
 * The embedded database: PostgreSQL compiled to WebAssembly (PGlite), which runs in this process and stores its data in a folder.
 * It has one connection, so a lock file keeps a second process out.
 */
import path from 'node:path';
import type { PGlite, Transaction } from '@electric-sql/pglite';
import { machineSteadyMs } from '../../core/clock.ts';
import { closeDataFiles, prepareDataFolder } from './data-folder.ts';
import type { Database, Db, Session, Share, SharedDatabase } from './db.ts';
import { type Engine, type Inner, startEngine } from './embedded-engine.ts';
import { lockFolder } from './folder-lock.ts';
import { eachBy } from './row-stream.ts';
import type { Sql } from './sql.ts';

/** Pause before another start after a failed one, because a start takes a second of this process's time. */
const RESTART_PAUSE_MS = 5_000;

/**
 * `requireUsable` is called once no other process can open the folder any more, and what it throws ends the opening.
 * @throws Fault `conflict` if another process has the folder open, `unavailable` if its disk is full, `invalid` if this process
 * can't write there or other users can.
 */
export async function openEmbedded(
  dataDir: string,
  onWait: (share: Share, waitMs: number) => void,
  requireUsable = async (): Promise<void> => {},
): Promise<SharedDatabase> {
  const folder = path.join(dataDir, 'database');
  await prepareDataFolder(dataDir);
  const unlock = await lockFolder(dataDir);
  const engines = await requireUsable()
    .then(() => closeDataFiles(dataDir))
    .then(() => openEngines(folder))
    .catch(async (error: unknown) => {
      await unlock();
      throw error;
    });

  async function run<T>(share: Share, work: (pglite: PGlite, inner: Inner) => Promise<T>): Promise<T> {
    const askedMs = machineSteadyMs();
    return (await engines.current()).run(share, (pglite, inner) => {
      onWait(share, machineSteadyMs() - askedMs);
      return work(pglite, inner);
    });
  }

  function shareOf(share: Share): Database {
    const query: Db['query'] = (statement) => run(share, (pglite) => ask(pglite, statement));
    return {
      kind: 'embedded',
      query,
      each: eachBy(query),
      transaction: (work) =>
        run(share, (pglite, inner) =>
          pglite.transaction((tx) =>
            work({ kind: 'transaction', query: (statement) => inner(() => ask(tx, statement)) }),
          ),
        ),
      script: async (text) => {
        await run(share, (pglite, inner) => pglite.transaction((tx) => inner(() => tx.exec(text))));
      },
      session: async () => openSession(await engines.current()),
      async close() {
        await engines.close();
        await unlock();
      },
    };
  }

  return { ...shareOf('api'), for: shareOf, requireSessions: async () => {}, cut() {} };
}

/** Provides the running engine, and starts a new one after a crash, for example because of a full disk. */
async function openEngines(folder: string) {
  let engine = await startEngine(folder);
  let starting: Promise<Engine> | undefined;
  let failure: { error: unknown; atMs: number } | undefined;

  async function restart(): Promise<Engine> {
    if (failure !== undefined && machineSteadyMs() - failure.atMs < RESTART_PAUSE_MS) throw failure.error;
    try {
      engine = await startEngine(folder);
      return engine;
    } catch (error) {
      failure = { error, atMs: machineSteadyMs() };
      throw error;
    }
  }

  return {
    /** @throws Fault `unavailable` while the cause of the crash lasts */
    async current(): Promise<Engine> {
      if (!engine.crashed.aborted) return engine;
      starting ??= restart().finally(() => {
        starting = undefined;
      });
      return starting;
    },
    async close() {
      await starting?.catch(() => {});
      await engine.close();
    },
  };
}

async function ask<Row>(db: PGlite | Transaction, statement: Sql): Promise<Row[]> {
  const result = await db.query<Row>(statement.text, [...statement.values]);
  return result.rows;
}

function openSession(engine: Engine): Session {
  const held = new Set<string>();
  const unlisten: (() => Promise<void>)[] = [];
  return {
    lost: engine.crashed,
    async tryLock(space, key) {
      if (held.has(`${space}/${key}`)) return true;
      const text = 'select pg_try_advisory_lock($1, $2) as locked';
      const [row] = await engine.run('follower', (pglite) =>
        ask<{ locked: boolean }>(pglite, { text, values: [space, key] }),
      );
      if (row?.locked === true) held.add(`${space}/${key}`);
      return row?.locked === true;
    },
    async unlock(space, key) {
      if (!held.delete(`${space}/${key}`)) return;
      const text = 'select pg_advisory_unlock($1, $2)';
      await engine.run('follower', (pglite) => ask(pglite, { text, values: [space, key] }));
    },
    async listen(channel, onNotify) {
      unlisten.push(await engine.run('follower', (pglite) => pglite.listen(channel, onNotify)));
    },
    // Only a crash of the engine takes its locks.
    abandon() {},
    async close() {
      // Only this process uses the connection, so its advisory locks can stay until the process ends.
      for (const stop of unlisten) if (!engine.crashed.aborted) await engine.run('follower', stop);
    },
  };
}
