/**
 * Bugs that are planted to see whether the simulation finds them: what a check reads is replaced by what the actor
 * believes, so that the check cannot fail.
 */
import { isRecord } from '../../src/core/json.ts';
import { type Sql, sql } from '../../src/store/db/sql.ts';

/** Of one actor. */
export type Bug = {
  /** Hears what a statement outside transactions gave. */
  note(text: string, rows: readonly unknown[]): void;
  /** What is run instead of a statement inside a transaction. */
  rewrite(statement: Sql): Sql;
  /** Of three nodes, how many must agree; two unless given. */
  quorum?: number;
  /** Transactions that begin with such a statement are none: what is between their statements can be cut off. */
  apart?: RegExp;
};

export const bugs = {
  none: (): Bug => ({ note() {}, rewrite: (statement) => statement }),

  /** The follower believes each node. */
  'no quorum': (): Bug => ({ note() {}, rewrite: (statement) => statement, quorum: 1 }),

  /** `settle` takes every outcome, also under a lease that is lost. */
  'no fence': (): Bug => {
    const epochs = new Map<number, number>();
    return {
      note(text, rows) {
        if (!text.includes('epoch = epoch + 1')) return;
        for (const row of rows) if (isRecord(row)) epochs.set(Number(row.id), Number(row.epoch));
      },
      rewrite(statement) {
        const count = statement.values.length;
        const believed = `select id, epoch, c.steps_ms from clock_state c, unnest($${count + 1}::bigint[], $${count + 2}::bigint[]) as t (id, epoch)
          where $1::text is not null`;
        const text = statement.text.replace(
          /select id, epoch, c\.steps_ms from lane[\s\S]*?for share skip locked/,
          believed,
        );
        if (text === statement.text) return statement;
        return { text, values: [...statement.values, [...epochs.keys()], [...epochs.values()]] };
      },
    };
  },

  /** A commit builds upon the tip that the follower knows, whether it is still the tip or not. */
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

  /** `settle` takes the outcome of an earlier delivery for the one that its watcher has asked for since. */
  'no redelivery fence': () => rewriting('and n.redelivery_count = s.redelivery_count', ''),

  /** A reorg believes that nothing was sent but what was settled. */
  'forgotten attempts': () =>
    rewriting("or n.state = 'waiting' and n.next_attempt_at", 'or false and n.next_attempt_at'),

  /** A notification that follows its record to another lane does so before that lane is woken. */
  'move before wake': (): Bug => ({
    ...{ note() {}, rewrite: (statement) => statement },
    // Which begins with the locks of both lanes (alignUnlessLocked).
    apart: /with wanted as materialized|^select from lane where id in/,
  }),

  /** A reorg withdraws only what was never attempted: the retries of orphaned transfers go on. */
  'retries of orphans': () =>
    rewriting(
      "2 = 0 and n.state in ('held', 'waiting')\n",
      "2 = 0 and n.state in ('held', 'waiting') and n.retry_count = 0\n",
    ),
} satisfies Record<string, () => Bug>;

/** Replaces a part of every statement that has it. */
function rewriting(part: string, replacement: string): Bug {
  return {
    note() {},
    rewrite: ({ text, values }) => ({ text: text.replaceAll(part, replacement), values }),
  };
}

export type BugName = keyof typeof bugs;
