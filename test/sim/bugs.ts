/**
 * Planted bugs that the simulation must find. Most of them replace the value that a check reads with the value that the
 * actor assumes, so the check cannot fail.
 */
import { isRecord } from '../../src/core/json.ts';
import { type Sql, sql } from '../../src/store/db/sql.ts';

/** A planted bug of one actor. */
export type Bug = {
  /** Receives the rows of each statement outside a transaction. */
  note(text: string, rows: readonly unknown[]): void;
  /** Returns the statement to run instead of this one. */
  rewrite(statement: Sql): Sql;
  /** How many of the three nodes must agree; two by default. */
  quorum?: number;
  /** A transaction that begins with such a statement is split: the actor can crash between its statements. */
  apart?: RegExp;
  /** The chance, in each turn, that stalled processes go on. Lower for bugs that show only after a long stall. */
  wakeChance?: number;
};

export const bugs = {
  none: (): Bug => ({ note() {}, rewrite: (statement) => statement }),

  /** The follower believes any single node. */
  'no quorum': (): Bug => ({ note() {}, rewrite: (statement) => statement, quorum: 1 }),

  /** `settle` accepts every outcome, even under a lost lease. */
  'no fence': (): Bug => {
    const epochs = new Map<number, number>();
    return {
      wakeChance: 0.005,
      note(text, rows) {
        if (!text.includes('epoch = epoch + 1')) return;
        for (const row of rows) if (isRecord(row)) epochs.set(Number(row.id), Number(row.epoch));
      },
      rewrite(statement) {
        const count = statement.values.length;
        const believed = `select id, epoch, c.steps_ms from clock_state c, unnest($${count + 1}::bigint[], $${count + 2}::bigint[]) as t (id, epoch)
          where $1::text is not null`;
        const text = statement.text.replace(
          /select id, epoch, c\.steps_ms from lane[\s\S]*?for key share skip locked/,
          believed,
        );
        if (text === statement.text) return statement;
        return { text, values: [...statement.values, [...epochs.keys()], [...epochs.values()]] };
      },
    };
  },

  /** A commit builds on the tip that the follower knows, even if the tip has changed. */
  'no compare-and-set': (): Bug => {
    const TIP = 'select number, hash from block order by number desc limit 1';
    let known: unknown;
    return {
      note(text, rows) {
        if (text === TIP) known = rows[0];
      },
      rewrite(statement) {
        if (statement.text !== TIP) return statement;
        return isRecord(known)
          ? sql`select ${known.number}::bigint as number, ${known.hash}::bytea as hash`
          : sql`${statement} offset 1000000`;
      },
    };
  },

  /** `settle` takes the outcome of an earlier delivery for that of a redelivery that was requested since. */
  'no redelivery fence': () => rewriting('and n.redelivery_count = s.redelivery_count', ''),

  /** Of many held notifications of one block, none are released. */
  'release without shares': () => rewriting('q.shard_id limit g.count)', 'q.shard_id limit 0 * g.count)'),

  /** A reorg assumes that only settled attempts were sent. */
  'forgotten attempts': () =>
    rewriting("or n.state = 'waiting' and n.next_attempt_at", 'or false and n.next_attempt_at'),

  /** A notification moves with its watched address to another lane before that lane is woken. */
  'move before wake': (): Bug => ({
    ...{ note() {}, rewrite: (statement) => statement },
    // That transaction begins by locking both lanes (alignUnlessLocked, alignNotifications).
    apart:
      /with wanted as materialized|^select from lane where id in \(select lane_id from \(\s*select n\.id, n\.lane_id/,
  }),

  /** Changes of addresses are pruned before the address filter has them. */
  'early pruning': () =>
    rewriting(
      'not exists (select from address_filter f where not pg_visible_in_snapshot(c.xid, f.snapshot))',
      'true',
    ),

  /** A reorg withdraws only notifications without an attempt, so retries of orphaned transfers continue. */
  'retries of orphans': () => rewriting('2 = 0 returning n.*', '2 = 0 and n.retry_count = 0 returning n.*'),

  /** A success leaves the queue without its attempt, the only record of it. */
  'success without attempt': () =>
    rewriting(
      'from updated order by position\n    )',
      "from updated where state <> 'processed' order by position\n    )",
    ),
  /** Retention drops a day without keeping its pending notifications. */
  'drop of pending': () =>
    rewriting(
      'n on n.shard_id = q.shard_id and n.id = q.id\n    where q.created_at >=',
      'n on false where q.created_at >=',
    ),

  /** Retention drops a day without keeping the notifications of blocks that a reorg can still orphan. */
  'drop before final': () =>
    rewriting('select (select finalized_number from chain) as number', 'select null::bigint as number'),
} satisfies Record<string, () => Bug>;

/** Replaces a part of every statement that contains it. */
function rewriting(part: string, replacement: string): Bug {
  return {
    note() {},
    rewrite: ({ text, values }) => ({ text: text.replaceAll(part, replacement), values }),
  };
}

export type BugName = keyof typeof bugs;
