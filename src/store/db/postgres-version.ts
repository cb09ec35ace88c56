/**
 * Checks that a server is PostgreSQL 15 or newer with the right encoding, and says what to do if it refuses the connection.
 */
import { Fault, messageOf } from '../../core/fault.ts';
import { adviceOnRefusal, type Db } from './db.ts';

const SERVER_VERSION_MIN = 150_000;

/** @throws Fault `invalid` for a server that is too old, another encoding, or a refused connection. */
export async function requireVersion(database: Db): Promise<void> {
  const text =
    "select current_setting('server_version_num')::int as version, current_setting('server_encoding') as encoding";
  const rows = await database
    .query<{ version: number; encoding: string }>({ text, values: [] })
    .catch((error: unknown) => {
      // At the start, a wrong password or an unknown database is a mistake, which waiting doesn't correct.
      if (error instanceof Fault && adviceOnRefusal(error.cause) === undefined) throw error;
      const text =
        error instanceof Fault
          ? error.message
          : `database: ${messageOf(error)}. Check database.url (DATABASE_URL)`;
      throw new Fault('invalid', text, { cause: error });
    });
  if (rows[0]?.encoding !== 'UTF8') {
    throw new Fault(
      'invalid',
      `database: its encoding is ${rows[0]?.encoding}, but names need UTF8. Create the database with: createdb --encoding UTF8 --template template0`,
    );
  }
  const version = rows[0]?.version ?? 0;
  if (version < SERVER_VERSION_MIN) {
    throw new Fault(
      'invalid',
      `database: PostgreSQL 15 or newer is required, but this server is version ${Math.floor(version / 10_000)}. Upgrade it, or change database.url (DATABASE_URL)`,
    );
  }
}
