/**
 * A database for each test, on real PostgreSQL or embedded: migrated, empty, and removed afterwards. Migrations run once, and
 * each test gets a copy.
 */
import { createHash, randomBytes } from 'node:crypto';
import { constants, cpSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { access, mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import pg from 'pg';
import type { Database } from '../../src/store/db/db.ts';
import { migrate } from '../../src/store/db/migrate.ts';
import { openDatabase } from '../../src/store/db/open.ts';
import { citusUrl, placeCitus, withEdits } from './citus.ts';
import { startPostgresServer } from './postgres-server.ts';

export type DatabaseKind = 'embedded' | 'postgres';
/** In a run on Citus (`npm run citus`), the kind `postgres` is a Citus cluster, and the only one. */
export const databaseKinds: readonly DatabaseKind[] =
  citusUrl() === undefined ? ['embedded', 'postgres'] : ['postgres'];

/** Long, because tests keep transactions open on purpose, on machines of any speed. */
const SILENT_MS_MAX = 600_000;

export type TestDatabase = {
  kind: DatabaseKind;
  /** For openDatabase; '' for the embedded database. */
  url: string;
  /** A temporary folder for this test, with either kind of database. */
  dataDir: string;
  /** Opens the database: any number of times on PostgreSQL, once at a time when embedded. `close` may be called twice. */
  open(): Promise<Database>;
  /** Closes all opened handles, drops the database and removes the folder. */
  [Symbol.asyncDispose](): Promise<void>;
};

const CACHE = fileURLToPath(new URL('../../node_modules/.cache/test-databases', import.meta.url));
const MIGRATIONS = fileURLToPath(new URL('../../src/store/db/migrations', import.meta.url));
/** It creates the table of the migrations. */
const MIGRATE = fileURLToPath(new URL('../../src/store/db/migrate.ts', import.meta.url));
const EDITS = fileURLToPath(new URL('./notification-edits.sql', import.meta.url));
/** template1 and template0, which PGlite cannot use to create databases. */
const UNUSED_DATABASES = ['1', '4'];
/** Slices of watchers that tests create. On PostgreSQL a watcher has one, as by default. */
export const slicesOf: Record<DatabaseKind, number> = { embedded: 3, postgres: 1 };
/** The advisory lock for creating the template ("chainbell test"). */
const TEMPLATE_LOCK = 0x6362_7401;

/** Creates a fresh, migrated database. Dispose drops it. */
export async function createTestDatabase(kind: DatabaseKind): Promise<TestDatabase> {
  const dataDir = await mkdtemp(path.join(tmpdir(), 'chainbell-test-'));
  const opened: Database[] = [];
  const place = kind === 'embedded' ? await placeEmbedded(dataDir) : await placePostgres();
  return {
    kind,
    url: place.url,
    dataDir,
    async open() {
      const plain = closeOnce(await openDatabase({ url: place.url, dataDir, silentMsMax: SILENT_MS_MAX }));
      const database = plain.isDistributed === true ? withEdits(plain) : plain;
      opened.push(database);
      return database;
    },
    async [Symbol.asyncDispose]() {
      for (const database of opened) await database.close();
      await place.drop();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

/**
 * Creates the templates of both kinds, so that no test has to wait for them. The server is TEST_DATABASE_URL. Creates them
 * one after the other, because a cold PGlite blocks the event loop for seconds, which a connection to the server would
 * mistake for a slow server.
 */
export async function prepareTemplates(): Promise<void> {
  if (citusUrl() !== undefined) return;
  await prepareEmbedded();
  await preparePostgres(await findServer());
}

type Place = { url: string; drop(): Promise<void> };

async function placePostgres(): Promise<Place> {
  const coordinator = citusUrl();
  if (coordinator !== undefined) return placeCitus(coordinator, { migrateAt, hash: migrationsHash() });
  const server = await findServer();
  const template = await preparePostgres(server);
  const name = `test_${process.pid}_${randomBytes(6).toString('hex')}`;
  await administer(server, (client) =>
    client.query(`create database ${name} template ${template} strategy file_copy`),
  );
  return {
    url: withDatabase(server, name),
    drop: () => administer(server, (client) => client.query(`drop database if exists ${name} with (force)`)),
  };
}

async function placeEmbedded(dataDir: string): Promise<Place> {
  await copyEmbedded(dataDir);
  return { url: '', drop: async () => {} };
}

/** Copies a migrated, empty embedded database into this data folder, because creating one there takes seconds. */
export async function copyEmbedded(dataDir: string): Promise<void> {
  // The asynchronous copy of these hundreds of files takes seven times as long.
  cpSync(path.join(await prepareEmbedded(), 'database'), path.join(dataDir, 'database'), { recursive: true });
}

let ownServer: Promise<{ url: string }> | undefined;

/** The test runner's server. A test file that runs alone starts a server that lives as long as this process. */
async function findServer(): Promise<string> {
  const given = process.env.TEST_DATABASE_URL;
  if (given !== undefined && given !== '') return given;
  ownServer ??= startPostgresServer();
  return (await ownServer).url;
}

/** Creates the migrated template database unless it exists, and returns its name. Safe to call concurrently. */
async function preparePostgres(server: string): Promise<string> {
  const name = `template_${migrationsHash()}`;
  await administer(server, async (client) => {
    await client.query('select pg_advisory_lock($1)', [TEMPLATE_LOCK]);
    const { rowCount } = await client.query('select from pg_database where datname = $1', [name]);
    if (rowCount === 1) return;
    // Created under a draft name, so that a run that is killed half-way leaves no incomplete template.
    const draft = `${name}_draft`;
    await client.query(`drop database if exists ${draft} with (force)`);
    await client.query(`create database ${draft}`);
    await migrateAt({ url: withDatabase(server, draft), dataDir: '' });
    await client.query(`alter database ${draft} rename to ${name}`);
  });
  return name;
}

let embeddedTemplate: Promise<string> | undefined;

/** The folder of the migrated embedded template, created if necessary. A cold PGlite takes about 3.5 s to start. */
function prepareEmbedded(): Promise<string> {
  embeddedTemplate ??= makeEmbeddedTemplate();
  return embeddedTemplate;
}

async function makeEmbeddedTemplate(): Promise<string> {
  const version = [pgliteVersion(), migrationsHash(), ...UNUSED_DATABASES, slicesOf.embedded].join('-');
  const template = path.join(CACHE, version);
  if (await isAllowed(path.join(template, 'database', 'PG_VERSION'), constants.R_OK)) return template;
  await mkdir(CACHE, { recursive: true }).catch(() => {});
  const isKept = await isAllowed(CACHE, constants.W_OK);
  const draft = await mkdtemp(path.join(isKept ? CACHE : tmpdir(), 'draft-'));
  await migrateAt({ url: '', dataDir: draft }, slicesOf.embedded);
  // PGlite never opens these copies of two databases. They are two thirds of the files that each test would copy.
  for (const oid of UNUSED_DATABASES)
    await rm(path.join(draft, 'database', 'base', oid), { recursive: true, force: true });
  // If another user owns node_modules, this process keeps a private template.
  if (!isKept) {
    process.once('exit', () => rmSync(draft, { recursive: true, force: true }));
    return draft;
  }
  // The rename publishes the template. If several processes have created one, the first wins and the others delete theirs.
  await rename(draft, template).catch(() => rm(draft, { recursive: true, force: true }));
  return template;
}

function isAllowed(file: string, mode: number): Promise<boolean> {
  return access(file, mode).then(
    () => true,
    () => false,
  );
}

async function migrateAt(options: { url: string; dataDir: string }, slices = 1): Promise<void> {
  const database = await openDatabase(options);
  try {
    await migrate(database);
    await database.script(readFileSync(EDITS, 'utf8'));
    if (slices !== 1) await database.script(`alter table watcher alter column slices set default ${slices}`);
  } finally {
    await database.close();
  }
}

async function administer(server: string, work: (client: pg.Client) => Promise<unknown>): Promise<void> {
  const client = new pg.Client({ connectionString: server });
  await client.connect();
  try {
    await work(client);
  } finally {
    await client.end();
  }
}

function withDatabase(server: string, name: string): string {
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}

function migrationsHash(): string {
  const hash = createHash('sha256');
  for (const name of readdirSync(MIGRATIONS).sort()) {
    hash.update(name).update(readFileSync(path.join(MIGRATIONS, name)));
  }
  hash.update(readFileSync(EDITS));
  hash.update(readFileSync(MIGRATE));
  return hash.digest('hex').slice(0, 16);
}

function pgliteVersion(): string {
  const require = createRequire(import.meta.url);
  // The package does not export its package.json, which is above the entry file in dist.
  const manifest: unknown = JSON.parse(
    readFileSync(path.join(require.resolve('@electric-sql/pglite'), '../../package.json'), 'utf8'),
  );
  if (typeof manifest !== 'object' || manifest === null || !('version' in manifest))
    throw new Error('no PGlite version');
  return String(manifest.version);
}

function closeOnce(database: Database): Database {
  let closed: Promise<void> | undefined;
  return {
    ...database,
    close() {
      closed ??= database.close();
      return closed;
    },
  };
}
