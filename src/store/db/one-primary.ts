/**
 * Refuses to start while several of the hosts accept writes: after a fail-over, a former primary that started again. Each process would use
 * the first one, so two followers would lead, and receivers would get every transfer twice, under two ids.
 */
import { randomInt } from 'node:crypto';
import pg from 'pg';
import { parseDatabaseUrl } from '../../core/database-url.ts';
import { Fault } from '../../core/fault.ts';
import { ask } from './postgres-hosts.ts';

/** As long as a connection to one of several hosts may take. A host that doesn't answer is none to connect to. */
const ASK_MS_MAX = 3_000;
/** Advisory lock space. Advisory locks belong to one database of one server, and several hosts may lead to the same one. */
const ONE_PRIMARY_LOCK_SPACE = 0x6362_000f;
const LOCK_KEY_MAX = 2 ** 31;

/** @throws Fault `unavailable` while several servers accept writes, because that can end by itself; `key` is the setting that names them. */
export async function requireOnePrimary(
  url: string,
  settings: pg.ClientConfig,
  key: 'url' | 'sessionUrl',
): Promise<void> {
  const { urls } = parseDatabaseUrl(url);
  if (urls.length === 1) return;
  await using parts = new AsyncDisposableStack();
  const lockKey = randomInt(LOCK_KEY_MAX);
  const asked = urls.map(async (connectionString) => {
    const client = new pg.Client({ ...settings, connectionString, connectionTimeoutMillis: ASK_MS_MAX });
    client.on('error', () => {});
    parts.defer(() => client.end().catch(() => {}));
    return (await takesLock(client, lockKey)) ? [new URL(connectionString).host] : [];
  });
  const primaries = (await Promise.all(asked)).flat();
  if (primaries.length < 2) return;
  throw new Fault(
    'unavailable',
    `database.${key}: several servers accept writes: ${primaries.join(', ')}. One of them is probably a former primary that started again after a fail-over. Stop it, and rebuild it as a standby (docs/how-to/run-in-production.md, Fail-over)`,
  );
}

/** Whether this server accepts writes, and is another one than those that have the lock already. */
async function takesLock(client: pg.Client, lockKey: number): Promise<boolean> {
  try {
    await client.connect();
    const text = `select pg_try_advisory_lock($1, $2) as is_locked where current_setting('transaction_read_only') = 'off'`;
    const { rows } = await ask(client, { text, values: [ONE_PRIMARY_LOCK_SPACE, lockKey] }, ASK_MS_MAX);
    return rows[0]?.is_locked === true;
  } catch {
    return false;
  }
}
