/**
 * Mistakes in the setup of a PostgreSQL server: the messages say what to run, and running it helps.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import pg from 'pg';
import { systemClock } from '../../../src/core/clock.ts';
import { migrate } from '../../../src/store/db/migrate.ts';
import { openDatabase } from '../../../src/store/db/open.ts';
import { openReplicaConnections } from '../../../src/store/db/postgres.ts';
import { createReplica } from '../../../src/store/db/replica.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { onPostgres } from '../../kit/each-database.ts';
import { hasPgbouncer, startPgbouncer } from '../../kit/pgbouncer.ts';

onPostgres(({ place }) => {
  /** Runs each statement on the server, outside of transactions. */
  async function onServer(...statements: string[]): Promise<void> {
    const client = new pg.Client({ connectionString: place().url });
    await client.connect();
    try {
      for (const statement of statements) await client.query(statement);
    } finally {
      await client.end();
    }
  }

  /** The URL of another database on the server, as another role if one is given. */
  function urlOf(name: string, role?: { name: string; password: string }): string {
    const url = new URL(place().url);
    url.pathname = `/${name}`;
    if (role !== undefined) Object.assign(url, { username: role.name, password: role.password });
    return url.href;
  }

  test('a database with another encoding than UTF8 is refused with the command that creates a right one', async () => {
    const name = `chainbell_ascii_${randomBytes(6).toString('hex')}`;
    await onServer(
      `create database ${name} encoding 'SQL_ASCII' template template0 lc_collate 'C' lc_ctype 'C'`,
    );
    try {
      await assert.rejects(openDatabase({ url: urlOf(name), dataDir: '' }), {
        code: 'invalid',
        message:
          'database: its encoding is SQL_ASCII, but names need UTF8. Create the database with: createdb --encoding UTF8 --template template0',
      });
    } finally {
      await onServer(`drop database ${name} with (force)`);
    }
  });

  test('a role that lacks a privilege fails its writes with what to do, and the granted privilege lets them succeed', async () => {
    const role = {
      name: `chainbell_reader_${randomBytes(6).toString('hex')}`,
      password: randomBytes(12).toString('hex'),
    };
    const { pathname } = new URL(place().url);
    await onServer(
      `create role ${role.name} login password '${role.password}'`,
      `grant select on all tables in schema public to ${role.name}`,
    );
    try {
      const database = await openDatabase({ url: urlOf(pathname.slice(1), role), dataDir: '' });
      try {
        const write = sql`update clock_state set probed_at = null`;
        const refused = {
          ...{ name: 'Fault', code: 'unavailable' },
          message:
            'database: permission denied for table clock_state. Grant the privilege to the role in database.url (DATABASE_URL), or make that role the owner',
        };
        await assert.rejects(database.query(write), refused);
        await assert.rejects(
          database.transaction((tx) => tx.query(write)),
          refused,
        );
        await onServer(`grant update on clock_state to ${role.name}`);
        await database.query(write);
      } finally {
        await database.close();
      }
    } finally {
      await onServer(`drop owned by ${role.name}`, `drop role ${role.name}`);
    }
  });

  test('the problem of a replica whose role cannot log in or read says what to change, which helps', async () => {
    const name = `chainbell_replica_${randomBytes(6).toString('hex')}`;
    const role = { name, password: randomBytes(12).toString('hex') };
    const database = new URL(place().url).pathname.slice(1);
    await using parts = new AsyncDisposableStack();
    const problemOf = async (url: string) => {
      const replica = createReplica({
        ...{ primary: await place().open(), processId: () => 'one', lagMsMax: 5_000, clock: systemClock() },
        ...{ replica: openReplicaConnections(url, 1), onRead() {} },
      });
      parts.defer(() => replica.close());
      await replica.probe();
      return replica.state().problem ?? '';
    };
    const setting = 'database\\.replicaUrl \\(CHAINBELL_DATABASE_REPLICA_URL\\)';
    await onServer(`create role ${name} login password '${role.password}'`);
    try {
      const url = urlOf(database, role);
      assert.match(
        await problemOf(urlOf(database, { name, password: 'wrong' })),
        new RegExp(
          `^can't be read: database: password authentication failed .* Check user and password in ${setting}$`,
        ),
      );
      assert.match(
        await problemOf(url),
        new RegExp(
          `^can't be read: database: permission denied for table process\\. Grant the privilege to the role in ${setting}`,
        ),
      );
      await onServer(`grant pg_read_all_data to ${name}`, `alter role ${name} set search_path = elsewhere`);
      assert.match(
        await problemOf(url),
        new RegExp(
          `^can't be read: relation "process" does not exist\\. Check the database in ${setting}, .*search_path`,
        ),
      );
      await onServer(`alter role ${name} reset search_path`);
      assert.match(await problemOf(url), /^is not a standby/);
    } finally {
      await onServer(`drop role ${name}`);
    }
  });

  test('times are read correctly whatever style the database shows them in, also through a pooler', async () => {
    const name = `chainbell_style_${randomBytes(6).toString('hex')}`;
    await onServer(
      `create database ${name} encoding 'UTF8' template template0`,
      `alter database ${name} set datestyle = 'German, DMY'`,
    );
    try {
      await using parts = new AsyncDisposableStack();
      const readTime = async (url: string, sessionUrl: string) => {
        const database = await openDatabase({ url, sessionUrl, dataDir: '' });
        parts.defer(() => database.close());
        return database.query(sql`select '2026-11-29 12:00:00+00'::timestamptz as at`);
      };
      const direct = urlOf(name);
      const expected = [{ at: new Date('2026-11-29T12:00:00Z') }];
      assert.deepEqual(await readTime(direct, ''), expected);
      if (!hasPgbouncer) return;
      const pooler = parts.use(await startPgbouncer(direct, 'transaction', { poolSize: 2 }));
      for (let times = 0; times < 3; times += 1)
        assert.deepEqual(await readTime(pooler.url, direct), expected);
    } finally {
      await onServer(`drop database ${name} with (force)`);
    }
  });

  test('the error for a role that may not create tables says to make it the owner of its database, which helps', async () => {
    const name = `chainbell_rights_${randomBytes(6).toString('hex')}`;
    const role = { name, password: randomBytes(12).toString('hex') };
    await onServer(
      `create role ${role.name} login password '${role.password}'`,
      `create database ${name} encoding 'UTF8' template template0`,
    );
    try {
      const url = urlOf(name, role);
      const database = await openDatabase({ url, dataDir: '' });
      try {
        await assert.rejects(migrate(database), {
          code: 'invalid',
          message:
            /^database: permission denied for schema public\. Make the role the owner of its database: alter database … owner to …$/,
        });
        await onServer(`alter database ${name} owner to ${role.name}`);
        assert.notDeepEqual(await migrate(database), []);
      } finally {
        await database.close();
      }
    } finally {
      await onServer(`drop database ${name} with (force)`, `drop role ${role.name}`);
    }
  });
});
