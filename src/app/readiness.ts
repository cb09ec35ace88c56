/**
 * The checks of /readyz: whether requests should be sent to this process.
 */
import type { Check } from '../api/context.ts';
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import { never } from '../core/abort.ts';
import { firstOrLate } from '../core/bounded-wait.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import { lacksKek } from '../domain/key-ring.ts';
import { findTipTimes } from '../store/blocks/blocks.ts';
import { readTime } from '../store/db/database-time.ts';
import type { Database } from '../store/db/db.ts';
import type { WriteHealth } from '../store/db/write-health.ts';

/** A database that doesn't answer within this time is not ready. */
export const DATABASE_MS_MAX = 2_000;

/** Each check by its name. Nodes are checked only where this process follows the chain. */
export async function checkReadiness({
  database,
  nodes,
  writes,
  clock,
  kekIds,
  readKekIds,
}: {
  database: Database;
  nodes: ChainNodes | undefined;
  writes: Pick<WriteHealth, 'failures'>;
  clock: Clock;
  /** The key-encryption keys of this process's secrets. Without them, stored keys are not checked. */
  kekIds?: readonly string[] | undefined;
  /** Those of the stored keys, as last read; undefined before the first reading. Takes little time, also while the reading is late. */
  readKekIds(): Promise<readonly string[] | undefined>;
}): Promise<Record<string, Check>> {
  const checks: Record<string, Check> = { database: await checkDatabase(database, clock) };
  if (nodes !== undefined) checks.nodes = checkNodes(nodes);
  if (checks.database?.ok === true) {
    const [blocks, stored] = await Promise.all([checkTip(database, clock), readKekIds()]);
    checks.blocks = blocks;
    if (kekIds !== undefined) checks.secret = checkSecret(kekIds, stored);
  }
  checks.writes = await checkWrites(writes);
  return checks;
}

async function checkDatabase(database: Database, clock: Clock): Promise<Check> {
  try {
    const answer = await firstOrLate({ clock, signal: never }, [readTime(database)], DATABASE_MS_MAX);
    return answer === 'late' ? { ok: false, message: 'no answer' } : { ok: true, message: database.kind };
  } catch (error) {
    return { ok: false, message: error instanceof Fault ? 'cannot be reached' : messageOf(error) };
  }
}

function checkNodes(nodes: ChainNodes): Check {
  const all = nodes.status();
  const working = all.filter(({ state }) => state === 'ok' || state === 'slow' || state === 'limited');
  const errors = all.flatMap(({ name, error, blocksBehind }) => {
    if (error !== undefined) return [error];
    return blocksBehind === undefined ? [] : [`${name} is ${blocksBehind} blocks behind`];
  });
  return {
    ok: working.length > 0,
    message: `${working.length} of ${all.length} work${errors.length > 0 ? `: ${errors.join('; ')}` : ''}`,
  };
}

async function checkWrites(writes: Pick<WriteHealth, 'failures'>): Promise<Check> {
  const failures = await writes.failures();
  const messages = failures.map(({ part, since, message: why }) => {
    return `${part} has stored nothing since ${since.toISOString()}: ${why}`;
  });
  return failures.length === 0 ? { ok: true, message: 'ok' } : { ok: false, message: messages.join(' ') };
}

export const SECRET_ADVICE =
  'Set the current secret there as secret, or add it to formerSecrets (CHAINBELL_FORMER_SECRETS), and restart the process';

/** The start has checked it, and that a reading is late says nothing about the secret. */
function checkSecret(kekIds: readonly string[], stored: readonly string[] | undefined): Check {
  const message = `API keys or signing secrets are stored under a secret that this process doesn't have. ${SECRET_ADVICE}`;
  return stored !== undefined && lacksKek(kekIds, stored)
    ? { ok: false, message }
    : { ok: true, message: 'ok' };
}

async function checkTip(database: Database, clock: Clock): Promise<Check> {
  const tip = findTipTimes(database).catch(() => 'unreadable' as const);
  const read = await firstOrLate({ clock, signal: never }, [tip], DATABASE_MS_MAX);
  if (read === 'late')
    return { ok: false, message: 'no answer: a lock on the table block, or a slow database, holds it up' };
  if (read === 'unreadable') return { ok: false, message: 'the table block cannot be read' };
  return read === undefined
    ? { ok: false, message: 'no block stored yet' }
    : { ok: true, message: `block ${read.number}` };
}
