/**
 * One run of the embedded PostgreSQL, comparable to a server process: it starts, and it may end in a panic. The next run then
 * recovers from the write-ahead log, as a server does.
 */
import { existsSync } from 'node:fs';
import { readdir, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { PGlite } from '@electric-sql/pglite';
import { machineSteadyMs } from '../../core/clock.ts';
import { Fault, messageOf } from '../../core/fault.ts';
import { flush } from '../../core/flush.ts';
import { stopOptimizingWasm } from '../../core/wasm.ts';
import { databaseError, INT8_OID, parseInt8, type Share } from './db.ts';
import { durableParameters, flushTree, openFiles } from './durable-files.ts';
import { unpackEmptyDatabase } from './empty-database.ts';
import { createFairQueue } from './fair-queue.ts';
import { withFolderFaults } from './folder-fault.ts';

export type Engine = {
  /** Aborts when the engine has crashed. It must not be used from then on. */
  crashed: AbortSignal;
  /**
   * Returns the result of `work`. Runs one piece of work at a time, fairly between the shares. Rejects as soon as the engine
   * crashes. @throws Fault `unavailable` if a retry may succeed
   */
  run<T>(share: Share, work: (pglite: PGlite, inner: Inner) => Promise<T>): Promise<T>;
  close(): Promise<void>;
};

/**
 * Runs a statement within a transaction. If the engine crashes, this never settles, because PGlite would otherwise try a
 * rollback, which hangs.
 */
export type Inner = <T>(work: () => Promise<T>) => Promise<T>;

/**
 * Starts the database in `folder`, and creates it if there is none.
 * @throws Fault `unavailable` if the disk is full, `invalid` if this process can't write there
 */
export async function startEngine(folder: string): Promise<Engine> {
  stopOptimizingWasm();
  return withFolderFaults(folder, async () => {
    if (!(await hasDatabase(folder))) await makeDatabase(folder);
    // PostgreSQL's own lock. A process that was killed may have left it, also empty, and `lockFolder` keeps others out.
    await rm(`${folder}/postmaster.pid`, { force: true });
    return engineOf(await startPglite(folder), `${folder}/pg_wal`);
  });
}

/**
 * How often the size of the write-ahead log is checked, in pieces of work. PGlite has no background worker for checkpoints, so
 * the log would grow without end.
 */
const LOG_CHECK_INTERVAL = 64;
/** Files of 16 MiB each. PostgreSQL keeps fewer after a checkpoint, because of max_wal_size. */
const LOG_FILES_MAX = 10;
const LOG_SETTINGS = ['-c', 'max_wal_size=128MB', '-c', 'min_wal_size=32MB'];
/** Most of PostgreSQL's default of 128 MB would be resident. The system's cache holds the same pages. */
const MEMORY_SETTINGS = ['-c', 'shared_buffers=8MB'];

async function hasDatabase(folder: string): Promise<boolean> {
  if (existsSync(`${folder}/PG_VERSION`)) return true;
  const names = existsSync(folder) ? await readdir(folder) : [];
  if (names.length === 0) return false;
  throw new Fault(
    'invalid',
    `${folder} contains files but no database: PG_VERSION is missing. Move the folder away or restore it`,
  );
}

/**
 * Creates the database under another name first, because PGlite would accept one that a full disk or a killed process has left
 * incomplete.
 */
async function makeDatabase(folder: string): Promise<void> {
  const draft = `${folder}.draft`;
  await rm(draft, { recursive: true, force: true });
  try {
    if (!(await unpackEmptyDatabase(draft))) await (await startPglite(draft)).close();
    await flushTree(draft);
    await rename(draft, folder);
    await flush(path.dirname(folder));
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

/** After the time and the process id. Lines of other levels may quote data. */
const LAST_WORDS = /^\S+ \S+ \S+ \[\d+\] (?:FATAL|PANIC): +(.*)/;

async function startPglite(folder: string): Promise<PGlite> {
  let lastWords = '';
  const pglite = new PGlite({
    fs: openFiles(folder),
    startParams: [...durableParameters(PGlite.defaultStartParams), ...LOG_SETTINGS, ...MEMORY_SETTINGS],
    parsers: { [INT8_OID]: parseInt8 },
    onStderr(line) {
      const words = LAST_WORDS.exec(line)?.[1];
      if (words === undefined) return false;
      lastWords = words;
      refuseMessages(pglite, lastWords);
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

/**
 * Has further messages rejected. PGlite sends one after each failed statement, also after its own `commit`, and PostgreSQL would wait for a
 * lock that it held when it panicked, without end.
 */
function refuseMessages(pglite: PGlite, lastWords: string): void {
  const code = lastWords.includes('No space left') ? DISK_FULL : IO_ERROR;
  pglite.execProtocolRawSync = () => {
    throw Object.assign(new Error(lastWords), { severity: 'PANIC', code });
  };
}

const DISK_FULL = '53100';
const IO_ERROR = '58030';

function engineOf(pglite: PGlite, logFolder: string): Engine {
  const crash = new AbortController();
  const queue = createFairQueue(machineSteadyMs);
  let runs = 0;
  /** Rejects the work that is running. */
  let rejectRunning = (_error: unknown) => {};

  /** Returns the error for the caller. Ends the engine if PostgreSQL has panicked. */
  function translate(error: unknown): unknown {
    const known = databaseError(error);
    if (isPanic(error) && !crash.signal.aborted) {
      end(pglite);
      crash.abort(known);
      rejectRunning(known);
    }
    return known;
  }

  /** Makes a checkpoint if the write-ahead log has too many files. */
  async function limitLog(): Promise<void> {
    runs += 1;
    if (runs % LOG_CHECK_INTERVAL === 0 && (await readdir(logFolder)).length > LOG_FILES_MAX)
      await pglite.exec('checkpoint');
  }

  const inner: Inner = async (work) => {
    try {
      return await work();
    } catch (error) {
      const known = translate(error);
      if (crash.signal.aborted) await new Promise(() => {});
      throw known;
    }
  };

  return {
    crashed: crash.signal,
    run<T>(share: Share, work: (pglite: PGlite, inner: Inner) => Promise<T>): Promise<T> {
      return queue.run(share, async () => {
        crash.signal.throwIfAborted();
        const { promise, resolve, reject } = Promise.withResolvers<T>();
        rejectRunning = reject;
        limitLog()
          .then(() => work(pglite, inner))
          .then(resolve, (error: unknown) => reject(translate(error)));
        return promise;
      });
    },
    async close() {
      await queue.idle();
      if (!crash.signal.aborted) await pglite.close();
    },
  };
}

/** Whether PostgreSQL has ended itself. Its memory is then unusable, and the next statement would hang. */
const isPanic = (error: unknown): boolean =>
  error instanceof Error && 'severity' in error && (error.severity === 'PANIC' || error.severity === 'FATAL');

/** Stops the timers that PGlite leaves running when it fails, because they would keep the process alive. */
function end(pglite: PGlite): void {
  try {
    pglite.Module?._emscripten_force_exit(1);
  } catch (error) {
    if (!isExitStatus(error)) throw error;
  }
}

/** Emscripten throws an ExitStatus, which is not an Error, when it has exited. */
const isExitStatus = (error: unknown): boolean =>
  typeof error === 'object' && error !== null && 'name' in error && error.name === 'ExitStatus';
