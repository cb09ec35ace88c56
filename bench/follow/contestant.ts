/**
 * The interface of a contestant, and its run: a fresh database, a process, and a client that watches the rows.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { createTestDatabase } from '../../test/kit/database.ts';
import { type Program, type RunningProgram, startProgram } from '../program.ts';
import type { BenchChain } from './chain.ts';
import type { Figures } from './results.ts';

/** How a contestant learns of new heads, where it has the choice. */
type Heads = 'polled' | 'WebSocket';

export type Contestant = {
  name: string;
  /** Whether it finds native transfers too, or only token transfers. */
  findsNative: boolean;
  /** `folder` is empty and is removed after the run. */
  prepare(run: {
    chain: BenchChain;
    client: pg.Client;
    databaseUrl: string;
    folder: string;
    startBlock: number;
    heads: Heads;
  }): Promise<Program>;
  /** Returns one row with `block`, or none: all transfers up to it are stored. Runs constantly, so it must use an index. */
  newestBlockSql: string;
  /** Returns `is_token` and `amount` of every transfer found. */
  transfersSql: string;
  /** Further rows that it stores, one for each swap of the chain, and the SQL that counts them. */
  further?: readonly { name: string; countSql: string }[];
};

export type Run = RunningProgram & {
  /** performance.now() just before the start of the process. */
  startedAt: number;
  /** The newest block whose transfers are stored; undefined before the first one. Throws when the process has ended. */
  newestBlock(): Promise<number | undefined>;
  /** Compares the rows with the transfers of the blocks from the first one to `chain.head()`. */
  checkRows(): Promise<{ transfers: number; rows: number; lost: number; extra: number }>;
  /** Counts the rows of each further kind by name. @throws Error when a count differs from the number of swaps. */
  checkFurther(): Promise<Figures>;
};

/** PostgreSQL error codes for a schema or a table that does not exist yet. */
const NOT_THERE_YET = ['3F000', '42P01'];

/** Starts a contestant on the chain from `startBlock`. Dispose removes its process and its database. */
export async function startRun(
  contestant: Contestant,
  { chain, startBlock, heads }: { chain: BenchChain; startBlock: number; heads: Heads },
): Promise<Run> {
  await using parts = new AsyncDisposableStack();
  const database = parts.use(await createTestDatabase('postgres'));
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-bench-'));
  parts.defer(() => rm(folder, { recursive: true, force: true }));
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  parts.defer(() => client.end());
  const databaseUrl = database.url;
  const prepared = await contestant.prepare({ chain, client, databaseUrl, folder, startBlock, heads });
  const startedAt = performance.now();
  const program = parts.use(await startProgram(prepared));
  const running = parts.move();
  return {
    ...program,
    startedAt,
    async newestBlock() {
      await program.assertAlive();
      const found = await client.query<{ block: string | null }>(contestant.newestBlockSql).catch((error) => {
        if (NOT_THERE_YET.includes(error.code)) return { rows: [] };
        throw error;
      });
      const block = found.rows[0]?.block ?? null;
      return block === null ? undefined : Number(block);
    },
    async checkRows() {
      const before = chain.countsUpTo(startBlock - 1);
      const after = chain.countsUpTo(chain.head());
      const transfers =
        after.token - before.token + (contestant.findsNative ? after.native - before.native : 0);
      const { rows } = await client.query<{ rows: number; different: number }>(
        `select count(*)::integer as rows,
           (count(distinct (is_token, amount)) filter (
             where amount > case when is_token then $1::bigint else $2::bigint end
               and amount <= case when is_token then $3::bigint else $4::bigint end))::integer as different
         from (${contestant.transfersSql}) as found`,
        [before.token, before.native, after.token, after.native],
      );
      const found = rows[0] ?? { rows: 0, different: 0 };
      return {
        transfers,
        rows: found.rows,
        lost: transfers - found.different,
        extra: found.rows - found.different,
      };
    },
    async checkFurther() {
      const swaps = chain.pairs.length * (chain.head() - startBlock + 1);
      const figures: Figures = {};
      for (const { name, countSql } of contestant.further ?? []) {
        const { rows } = await client.query<{ count: string }>(countSql);
        const count = Number(rows[0]?.count);
        if (count !== swaps) throw new Error(`${count} ${name} of ${swaps} swaps`);
        figures[name] = count;
      }
      return figures;
    },
    [Symbol.asyncDispose]: () => running.disposeAsync(),
  };
}

/** Polls until the contestant has stored all transfers up to `block`. Returns false after `timeoutMs`. */
export async function reachesBlock(
  run: Run,
  block: number,
  { pollMs, timeoutMs, onRows = () => {} }: { pollMs: number; timeoutMs: number; onRows?: () => void },
): Promise<boolean> {
  const startedAt = performance.now();
  for (;;) {
    const newest = await run.newestBlock();
    if (newest !== undefined) onRows();
    if (newest !== undefined && newest >= block) return true;
    if (performance.now() - startedAt > timeoutMs) return false;
    await delay(pollMs);
  }
}
