/**
 * The documentation works as written: its configurations are valid, and marked blocks run.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { findFreePort } from '../../devnet/free-port.ts';
import { loadConfig } from '../../src/config/load.ts';
import { sql } from '../../src/store/db/sql.ts';
import { startChain } from '../kit/anvil.ts';
import { citusUrl } from '../kit/citus.ts';
import { nameGuide } from '../kit/citus-cluster.ts';
import { createTestDatabase } from '../kit/database.ts';
import { followPage, readBlocks } from '../kit/documentation.ts';
import { startPostgresPair } from '../kit/postgres-pair.ts';
import { SECRET } from '../kit/service.ts';

const DOCS = fileURLToPath(new URL('../../docs', import.meta.url));
const SEVERAL = 'how-to/run-several-processes.md';
const CITUS = 'how-to/run-on-citus.md';
const REPLICAS = 'how-to/use-read-replicas.md';
const OWN_CHAIN = 'tutorial/your-own-chain.md';
const POINTS_RULE = 'tutorial/first-points-rule.md';
const pages = globSync('**/*.md', { cwd: DOCS }).sort();

test('every configuration in the documentation is valid', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-docs-'));
  try {
    const problems: string[] = [];
    let count = 0;
    for (const page of pages) {
      for (const text of configurationsOf(page)) {
        count += 1;
        const file = path.join(folder, `${count}.yaml`);
        await writeFile(file, text);
        const isWhole = /^chain:/m.test(text);
        const chain = { CHAINBELL_CHAIN_ID: '1', CHAINBELL_CHAIN_RPC: 'http://node.example' };
        try {
          loadConfig({ file, env: isWhole ? {} : chain });
        } catch (error) {
          problems.push(`${page}: ${error instanceof Error ? error.message : ''}\n${text}`);
        }
      }
    }
    assert.deepEqual(problems, []);
    assert.ok(count >= 5, `${count} configurations were found`);
  } finally {
    await rm(folder, { recursive: true });
  }
});

/** A block that begins with a space continues the block before it. */
function configurationsOf(page: string): string[] {
  const texts: string[] = [];
  for (const { text } of readBlocks(page).filter(({ language }) => language === 'yaml'))
    texts.push(text.startsWith(' ') ? `${texts.pop() ?? ''}${text}` : text);
  return texts;
}

test('only their owner can read the documented backup of the embedded database and of its secret', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-docs-'));
  try {
    await mkdir(path.join(folder, '.chainbell'));
    await writeFile(path.join(folder, '.chainbell', 'secret'), 'secret');
    const block = readBlocks('how-to/back-up-and-restore.md').find(({ text }) => text.includes('tar '));
    execFileSync('sh', ['-ec', `umask 022; ${block?.text}`], { cwd: folder });
    for (const file of ['chainbell.tar.gz', 'chainbell-secret'])
      assert.equal((await stat(path.join(folder, file))).mode & 0o777, 0o600, file);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('the documented statement for an old backup moves the ids of notifications, attempts and watchers ahead', async () => {
  const block = readBlocks('how-to/back-up-and-restore.md').find(({ text }) => text.includes('setval'));
  const statement = /-c "([^"]+)"/.exec(block?.text ?? '')?.[1] ?? '';
  await using place = await createTestDatabase('postgres');
  const database = await place.open();
  await database.script(statement);
  const ids = await database.query<{ id: number }>(sql`
    select nextval('notification_id_seq') as id union all select nextval('delivery_attempt_id_seq')
    union all select nextval('watcher_id_seq') * 1000`);
  assert.deepEqual(
    ids.map(({ id }) => id > 1_000_000_000),
    [true, true, true],
  );
});

test('every page with runnable blocks is followed', () => {
  const marked = pages.filter((page) => readBlocks(page).some(({ order }) => order !== undefined));
  assert.deepEqual(marked, [CITUS, SEVERAL, REPLICAS, POINTS_RULE, OWN_CHAIN]);
});

test('the tutorial about your own chain works as it is written', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-docs-'));
  const [chain, api, receiver, metrics] = [
    await findPort(),
    await findPort(),
    await findPort(),
    await findPort(),
  ];
  try {
    await followPage(OWN_CHAIN, {
      replace: replacer({
        '8545': chain,
        '8080': api,
        '9000': receiver,
        '../my-chain': folder,
      }),
      environment: { CHAINBELL_HTTP_PORT: api, CHAINBELL_METRICS_PORT: metrics },
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('the tutorial about points rules works as it is written', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-docs-'));
  const [demo, api, metrics] = [await findPort(), await findPort(), await findPort()];
  const demoFolder = path.join(folder, 'demo');
  const isStarted = () => existsSync(path.join(demoFolder, 'chainbell.yaml'));
  /** The demo takes another port if 8545 is taken. */
  const chainPort = () =>
    /127\.0\.0\.1:(\d+)/.exec(readFileSync(path.join(demoFolder, 'chainbell.yaml'), 'utf8'))?.[1] ?? '';
  try {
    await followPage(POINTS_RULE, {
      replace: async (text) =>
        replacer({
          'npm start': `npm start -- --fresh --port ${demo} --data-dir ${demoFolder}`,
          '8080': demo,
          '8180': api,
          '9564': metrics,
          '../my-points': path.join(folder, 'my-points'),
          ...(isStarted() && { '8545': chainPort() }),
          ...(text.includes('from: 999999') && { '999999': String((await newestBlockOf(api)) + 50) }),
        })(text),
      environment: {},
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test('the guide to several processes works as it is written, also after the leading follower was killed', async () => {
  await using database = await createTestDatabase('postgres');
  const ports: Record<string, string> = {};
  for (const port of ['8545', '8080', '9000', '9464', '9465', '9466', '9467', '9468'])
    ports[port] = await findPort();
  await followPage(SEVERAL, {
    replace: replacer({
      'postgres://chainbell@127.0.0.1:5432/chainbell': database.url,
      '../my-deployment': path.join(database.dataDir, 'deployment'),
      ...ports,
    }),
    environment: { CHAINBELL_HTTP_PORT: ports['8080'] ?? '' },
  });
});

test('the guide to read replicas works as it is written, with a streaming replica', async () => {
  await using chain = await startChain();
  await using pair = await startPostgresPair();
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-docs-'));
  const [api, metrics] = [await findPort(), await findPort()];
  try {
    await followPage(REPLICAS, {
      replace: replacer({ 'postgres://chainbell@replica.example/chainbell': pair.standby.url, '8080': api }),
      environment: {
        ...{ DATABASE_URL: pair.primary.url, CHAINBELL_SECRET: SECRET, CHAINBELL_DATA_DIR: folder },
        ...{ CHAINBELL_CHAIN_ID: '31337', CHAINBELL_CHAIN_RPC: chain.url },
        ...{ CHAINBELL_HTTP_PORT: api, CHAINBELL_METRICS_PORT: metrics },
      },
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

const coordinator = citusUrl() ?? '';

test('the guide to Citus works as it is written, and a worker that is added gets shards', {
  skip: coordinator === '' && 'TEST_CITUS_URL is not set: run `npm run citus -- system/documentation`',
}, async () => {
  await using chain = await startChain();
  await using guide = await nameGuide(coordinator);
  const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-docs-'));
  const [api, metrics] = [await findPort(), await findPort()];
  try {
    await followPage(CITUS, {
      replace: replacer({ ...guide.replacements, '8080': api }),
      environment: {
        ...{ CHAINBELL_SECRET: SECRET, CHAINBELL_DATA_DIR: folder },
        ...{ CHAINBELL_CHAIN_ID: '31337', CHAINBELL_CHAIN_RPC: chain.url },
        ...{ CHAINBELL_HTTP_PORT: api, CHAINBELL_METRICS_PORT: metrics },
      },
    });
    const rows = await guide.ask(
      `select nodeport from citus_shards where table_name = 'queue'::regclass group by nodeport`,
    );
    assert.equal(rows.length, 2);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

const findPort = async () => String(await findFreePort(0));

/** In one pass, because a free port can contain another port. */
function replacer(replacements: Record<string, string>): (text: string) => string {
  const words = Object.keys(replacements).map((word) => word.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&'));
  const pattern = new RegExp(words.join('|'), 'g');
  return (text) => text.replaceAll(pattern, (word) => replacements[word] ?? word);
}

async function newestBlockOf(port: string): Promise<number> {
  const response = await fetch(`http://127.0.0.1:${port}/status`);
  const status: unknown = await response.json();
  return Number(Object(Object(status).cursor).number);
}
