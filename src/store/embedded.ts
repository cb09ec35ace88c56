/**
 * The Database inside this process: PostgreSQL compiled to WebAssembly (PGlite), in a folder.
 * One connection, so one process; a lock file keeps a second process out.
 */
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { PGlite, type Transaction } from '@electric-sql/pglite';
import { type Database, type Db, databaseError, INT8_OID, parseInt8, type Session } from './db.ts';
import { lockFolder } from './folder-lock.ts';
import type { Sql } from './sql.ts';

/** @throws Fault `conflict` when another process has the folder open. */
export async function openEmbedded(dataDir: string): Promise<Database> {
  const folder = path.join(dataDir, 'database');
  await mkdir(dataDir, { recursive: true });
  const unlock = await lockFolder(dataDir);
  let pglite: PGlite;
  try {
    pglite = await PGlite.create({ dataDir: folder, parsers: { [INT8_OID]: parseInt8 } });
    await pglite.exec("set timezone to 'UTC'");
  } catch (error) {
    await unlock();
    throw error;
  }
  return {
    kind: 'embedded',
    query: (statement) => run(pglite, statement),
    async each(statement, onRow) {
      for (const row of await run<Parameters<typeof onRow>[0]>(pglite, statement)) {
        onRow(row);
        await nextTurn();
      }
    },
    // PGlite queues every other query until the transaction has ended.
    transaction: (work) =>
      pglite.transaction((tx) => work({ kind: 'transaction', query: (statement) => run(tx, statement) })),
    script: async (text) => {
      await pglite.transaction((tx) => tx.exec(text));
    },
    session: async () => openSession(pglite),
    async close() {
      await pglite.close();
      await unlock();
    },
  };
}

async function run<Row>(pglite: PGlite | Transaction, statement: Sql): Promise<Row[]> {
  try {
    const result = await pglite.query<Row>(statement.text, [...statement.values]);
    return result.rows;
  } catch (error) {
    throw databaseError(error);
  }
}

function openSession(pglite: PGlite): Session {
  const db: Db = { query: (statement) => run(pglite, statement) };
  const held = new Set<string>();
  const unlisten: (() => Promise<void>)[] = [];
  return {
    lost: new AbortController().signal,
    async tryLock(space, key) {
      if (held.has(`${space}/${key}`)) return true;
      const text = 'select pg_try_advisory_lock($1, $2) as locked';
      const [row] = await db.query<{ locked: boolean }>({ text, values: [space, key] });
      if (row?.locked === true) held.add(`${space}/${key}`);
      return row?.locked === true;
    },
    async listen(channel, onNotify) {
      unlisten.push(await pglite.listen(channel, onNotify));
    },
    async close() {
      // Nobody else shares the one connection: its advisory locks end with the process.
      for (const stop of unlisten) await stop();
    },
  };
}
