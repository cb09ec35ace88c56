/**
 * One run of the embedded PostgreSQL, as a server's process is one: it starts, and may die of a panic. The next run then
 * recovers from the write-ahead log, as a server does.
 */
import { existsSync } from 'node:fs';
import { readdir, rename, rm } from 'node:fs/promises';
import { PGlite } from '@electric-sql/pglite';
import { machineSteadyMs } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import { databaseError, INT8_OID, parseInt8, type Share } from './db.ts';
import { createFairQueue } from './fair-queue.ts';
import { withFolderFaults } from './folder-fault.ts';

export type Engine = {
  /** Aborts when it has died; nothing may be asked of it from then on. */
  died: AbortSignal;
  /**
   * What `work` returns; rejects as soon as the engine dies. One at a time, in turns that are fair between the shares.
   * @throws Fault `unavailable` when trying again may help
   */
  run<T>(share: Share, work: (pglite: PGlite, inner: Inner) => Promise<T>): Promise<T>;
  close(): Promise<void>;
};

/** Runs a statement inside of a transaction. When the engine dies of it this never settles, because a rollback hangs. */
export type Inner = <T>(work: () => Promise<T>) => Promise<T>;

/**
 * Starts the database in `folder`, making it when there is none.
 * @throws Fault `unavailable` when the disk is full, `invalid` when nothing can be written there
 */
export async function startEngine(folder: string): Promise<Engine> {
  return withFolderFaults(folder, async () => {
    if (!(await hasDatabase(folder))) await makeDatabase(folder);
    return engineOf(await startPglite(folder), `${folder}/pg_wal`);
  });
}

/** No background worker makes checkpoints here, and the write-ahead log keeps everything since the last one. */
const LOOK_TURNS = 64;
/** Of 16 MiB each; more than what PostgreSQL keeps after a checkpoint, by the first of the settings. */
const LOG_FILES_MAX = 10;
const LOG_SETTINGS = ['-c', 'max_wal_size=128MB', '-c', 'min_wal_size=32MB'];

async function hasDatabase(folder: string): Promise<boolean> {
  if (existsSync(`${folder}/PG_VERSION`)) return true;
  const names = existsSync(folder) ? await readdir(folder) : [];
  if (names.length === 0) return false;
  throw new Fault(
    'invalid',
    `${folder} holds no database: it has no PG_VERSION, but other files. Move it away or restore it`,
  );
}

/** Under another name until it is whole, because PGlite takes what a full disk has cut off for a database. */
async function makeDatabase(folder: string): Promise<void> {
  const draft = `${folder}.draft`;
  await rm(draft, { recursive: true, force: true });
  try {
    const pglite = await startPglite(draft);
    await pglite.close();
    await rename(draft, folder);
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

async function startPglite(folder: string): Promise<PGlite> {
  let lastWords = '';
  const pglite = new PGlite({
    dataDir: folder,
    startParams: [...PGlite.defaultStartParams, ...LOG_SETTINGS],
    parsers: { [INT8_OID]: parseInt8 },
    onStderr(line) {
      if (/(FATAL|PANIC): /.test(line)) lastWords = line.replace(/^.*?(FATAL|PANIC): +/, '');
      return false;
    },
  });
  try {
    await pglite.waitReady;
    await pglite.exec("set timezone to 'UTC'");
    return pglite;
  } catch (error) {
    end(pglite);
    if (lastWords === '') throw error;
    throw new Error(`${messageOf(error)}: ${lastWords}`, { cause: error });
  }
}

function engineOf(pglite: PGlite, logFolder: string): Engine {
  const death = new AbortController();
  const queue = createFairQueue(machineSteadyMs);
  let turns = 0;
  /** Ends the turn in which it dies. */
  let endTurn = (_error: unknown) => {};

  /** The error for the caller; ends the engine when PostgreSQL has ended itself. */
  function judge(error: unknown): unknown {
    const known = databaseError(error);
    if (isPanic(error) && !death.signal.aborted) {
      end(pglite);
      death.abort(known);
      endTurn(known);
    }
    return known;
  }

  /** Makes a checkpoint when the log has grown long. */
  async function shorten(): Promise<void> {
    turns += 1;
    if (turns % LOOK_TURNS === 0 && (await readdir(logFolder)).length > LOG_FILES_MAX)
      await pglite.exec('checkpoint');
  }

  const inner: Inner = async (work) => {
    try {
      return await work();
    } catch (error) {
      const known = judge(error);
      if (death.signal.aborted) await new Promise(() => {});
      throw known;
    }
  };

  return {
    died: death.signal,
    run<T>(share: Share, work: (pglite: PGlite, inner: Inner) => Promise<T>): Promise<T> {
      return queue.run(share, async () => {
        death.signal.throwIfAborted();
        const { promise, resolve, reject } = Promise.withResolvers<T>();
        endTurn = reject;
        shorten()
          .then(() => work(pglite, inner))
          .then(resolve, (error: unknown) => reject(judge(error)));
        return promise;
      });
    },
    async close() {
      await queue.idle();
      if (!death.signal.aborted) await pglite.close();
    },
  };
}

/** PostgreSQL has ended itself: what it holds in memory is worth nothing, and the next statement would hang. */
const isPanic = (error: unknown): boolean =>
  error instanceof Error && 'severity' in error && (error.severity === 'PANIC' || error.severity === 'FATAL');

/** Ends what PGlite leaves running when it fails: its timers would keep the process alive. */
function end(pglite: PGlite): void {
  try {
    pglite.Module?._emscripten_force_exit(1);
  } catch (error) {
    if (!isExitStatus(error)) throw error;
  }
}

/** Which is how it says that it has ended; not an Error. */
const isExitStatus = (error: unknown): boolean =>
  typeof error === 'object' && error !== null && 'name' in error && error.name === 'ExitStatus';
