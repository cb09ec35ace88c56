import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { after, before, beforeEach, describe } from 'node:test';
import type { Database } from '../../src/store/db/db.ts';
import { sql } from '../../src/store/db/sql.ts';
import { listWrongSums } from '../kit/awards.ts';
import { addressOf, alice, bob, hashOf } from '../kit/chain-story.ts';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { emptyDatabase } from '../kit/empty-tables.ts';
import { sampledTest } from '../kit/sample.ts';
import { waitUntil } from '../kit/wait.ts';
import { chain, chainbell, type Run, startChainbell } from './chainbell.ts';

const test = sampledTest(import.meta.url);

type Summary = {
  lines: number;
  fine: number;
  added: number;
  known: number;
  dry_run: boolean;
  problems: { line: number; message: string }[];
};

const summaryOf = ({ out }: Run): Summary => JSON.parse(out);
const lineOf = (parts: Record<string, unknown> = {}) =>
  JSON.stringify({
    user: alice,
    category: 'trading',
    points: 10,
    created_at: '2026-01-15T12:00:00Z',
    hash: hashOf(1),
    ...parts,
  });
const linesOf = (count: number) =>
  Array.from({ length: count }, (_, index) => lineOf({ hash: hashOf(index) }));

describe('points import on a server', () => {
  let place: TestDatabase;
  let database: Database;
  const environment = () => ({
    ...chain,
    CHAINBELL_DATABASE_URL: place.url,
    CHAINBELL_SECRET: Buffer.alloc(32, 7).toString('base64'),
  });
  const runImport = (...words: string[]) =>
    chainbell(place.dataDir, environment(), 'points', 'import', ...words);
  /** Writes the file and imports it. */
  const importText = async (name: string, text: string | Buffer, ...flags: string[]) => {
    await writeFile(path.join(place.dataDir, name), text);
    return runImport(name, '--json', ...flags);
  };
  const listPoints = () =>
    database.query(sql`
      select encode(user_address, 'hex') as user, category, points::text, rule, ordinal, awarded_at from point
      order by awarded_at, tx_hash, ordinal, rule limit 100`);
  const countPoints = async () =>
    (await database.query<{ count: number }>(sql`select count(*) from point`))[0]?.count;

  before(async () => {
    place = await createTestDatabase('postgres');
    database = await place.open();
  });
  beforeEach(() => emptyDatabase(database));
  after(() => place[Symbol.asyncDispose]());

  test('the same awards as NDJSON and as CSV are stored once, with every digit', async () => {
    const ndjson = [
      `{"user":"${alice}","category":"ликвидность, \\"A\\"","points":123456789012345678901.000000000000000001,"month":"2026-02","hash":"${hashOf(1)}"}`,
      '',
      `{"user":"${bob}","category":"bridge","points":"-2.50","created_at":"2026-01-31T23:59:59.999Z","hash":"${hashOf(2)}","id":"season-1","ordinal":3,"month":null}`,
    ].join('\r\n');
    const csv = [
      '\ufeffuser,category,points,month,created_at,hash,id,ordinal',
      `${alice},"ликвидность, ""A""",123456789012345678901.000000000000000001,2026-02,,${hashOf(1)},,`,
      '',
      `${bob} , bridge,-2.50,,2026-01-31T23:59:59.999Z,${hashOf(2)},season-1,3`,
    ].join('\r\n');
    const first = await importText('awards.ndjson', ndjson);
    assert.equal(first.code, 0, first.err);
    assert.deepEqual(summaryOf(first), {
      lines: 2,
      fine: 2,
      added: 2,
      known: 0,
      dry_run: false,
      problems: [],
    });
    assert.deepEqual(await listPoints(), [
      {
        user: bob.slice(2),
        category: 'bridge',
        points: '-2.5',
        rule: 'import:season-1',
        ordinal: 3,
        awarded_at: new Date('2026-01-31T23:59:59.999Z'),
      },
      {
        user: alice.slice(2),
        category: 'ликвидность, "A"',
        points: '123456789012345678901.000000000000000001',
        rule: 'import',
        ordinal: 0,
        awarded_at: new Date('2026-02-01T00:00:00.000Z'),
      },
    ]);
    for (const again of [await importText('awards.csv', csv), await importText('again.ndjson', ndjson)]) {
      assert.equal(again.code, 0, again.err);
      assert.deepEqual(summaryOf(again), {
        lines: 2,
        fine: 2,
        added: 0,
        known: 2,
        dry_run: false,
        problems: [],
      });
    }
    assert.deepEqual(await listWrongSums(database), []);
  });

  test('a dry run reports the same as an import, and stores nothing', async () => {
    const lines = [...linesOf(4_500), lineOf({ hash: hashOf(7) }), lineOf({ hash: hashOf(8), points: 11 })];
    await importText('some.ndjson', linesOf(100).join('\n'));
    const fine = await importText('awards.ndjson', linesOf(4_500).join('\n'), '--dry-run');
    assert.equal(fine.code, 0, fine.err);
    assert.deepEqual(summaryOf(fine), {
      lines: 4_500,
      fine: 4_500,
      added: 4_400,
      known: 100,
      dry_run: true,
      problems: [],
    });
    const wrong = await importText('awards.ndjson', lines.join('\n'), '--dry-run');
    assert.equal(wrong.code, 64);
    assert.deepEqual(
      summaryOf(wrong).problems.map(({ line }) => line),
      [4_502],
    );
    assert.equal(await countPoints(), 100);
  });

  test('no award of a batch with an invalid line is stored, and importing the corrected file skips awards that are stored', async () => {
    const lines = linesOf(4_500);
    const broken = lines.with(4_100, lineOf({ user: alice.slice(2), points: 0 })).with(4_400, '{"user":');
    const first = await importText('awards.ndjson', broken.join('\n'));
    assert.equal(first.code, 64);
    const { problems, ...counts } = summaryOf(first);
    assert.deepEqual(counts, { lines: 4_500, fine: 4_498, added: 4_000, known: 0, dry_run: false });
    assert.deepEqual(
      problems.map(({ line }) => line),
      [4_101, 4_401],
    );
    assert.match(
      first.err,
      /^line 4101: user must be 0x and 40 hexadecimal digits; points must be a number other than 0/,
    );
    assert.match(first.err, /\n4500 lines: 4498 fine, 2 wrong\n/);
    assert.equal(await countPoints(), 4_000);
    const second = await importText('awards.ndjson', lines.join('\n'));
    assert.deepEqual(summaryOf(second), {
      lines: 4_500,
      fine: 4_500,
      added: 500,
      known: 4_000,
      dry_run: false,
      problems: [],
    });
    assert.deepEqual(await listWrongSums(database), []);
  });

  test('an award that is already stored with other contents is reported and adds nothing', async () => {
    await importText('awards.ndjson', lineOf());
    const { out, code } = await importText(
      'awards.ndjson',
      [lineOf({ ordinal: 1 }), lineOf({ points: 11 }), lineOf({ user: bob, ordinal: 1 })].join('\n'),
    );
    assert.equal(code, 64);
    const problemsOf = (text: string) => (JSON.parse(text) as Summary).problems;
    assert.deepEqual(
      problemsOf(out).map(({ line }) => line),
      [3],
    );
    assert.match(problemsOf(out)[0]?.message ?? '', /is on line 1 with other contents\. Give each award/);
    const next = await importText(
      'awards.ndjson',
      [lineOf({ ordinal: 1 }), lineOf({ points: 11 })].join('\n'),
    );
    assert.deepEqual(
      problemsOf(next.out).map(({ line }) => line),
      [2],
    );
    assert.match(problemsOf(next.out)[0]?.message ?? '', /is already stored with other contents/);
    assert.equal(await countPoints(), 1);
  });

  test('an import stops after 20 problems', async () => {
    const { code, out, err } = await importText('wrong', '{}\n'.repeat(1_000));
    assert.deepEqual([code, summaryOf({ out, code, err }).problems.length], [64, 20]);
    assert.match(
      err,
      /20 lines: 0 fine, 20 wrong\n0 awards added, 0 already stored\ntoo many problems: the rest of the file was not read\n/,
    );
  });

  test('an empty file adds no awards, and a missing file exits with 64', async () => {
    const empty = await importText('empty', '');
    assert.deepEqual([empty.code, summaryOf(empty).lines], [0, 0]);
    for (const [name, reason] of [
      ['missing.csv', 'there is no such file'],
      ['.', 'it is a folder'],
    ] as const) {
      const { code, out, err } = await runImport(name);
      const advice = 'Name a readable file, or - for standard input';
      assert.deepEqual([code, out, err], [64, '', `chainbell: cannot read ${name}: ${reason}. ${advice}\n`]);
    }
  });

  test('an interrupted import keeps the stored batches and says how to continue', async () => {
    const child = startChainbell(place.dataDir, environment(), 'points', 'import', '-', '--json');
    child.process.stdin.write(`${linesOf(2_500).join('\n')}\n`);
    await waitUntil(async () => (await countPoints()) === 2_000);
    child.process.kill('SIGINT');
    const ended = await child.ended;
    assert.equal(ended.code, 75, ended.err);
    assert.deepEqual([summaryOf(ended).added, await countPoints()], [2_000, 2_000]);
    assert.match(ended.err, /interrupted: to continue, import the file again/);
  });

  test('awards can be imported from standard input', async () => {
    const child = startChainbell(place.dataDir, environment(), 'points', 'import', '-');
    child.process.stdin.end(linesOf(3).join('\n'));
    const { code, out, err } = await child.ended;
    assert.deepEqual([code, out], [0, '']);
    assert.equal(err, '3 lines: 3 fine, 0 wrong\n3 awards added, 0 already stored\n');
  });
});

test('awards can be imported into the embedded database', async () => {
  await using place = await createTestDatabase('embedded');
  await writeFile(
    path.join(place.dataDir, 'awards.csv'),
    `user,category,points,month,hash\n${addressOf(1)},trading,1,2026-01,${hashOf(1)}\n`,
  );
  const run = () =>
    chainbell(
      place.dataDir,
      { ...chain, CHAINBELL_DATA_DIR: place.dataDir },
      'points',
      'import',
      'awards.csv',
      '--json',
      '--dry-run',
    );
  const { code, out, err } = await run();
  assert.equal(code, 0, err);
  assert.equal(summaryOf({ code, out, err }).added, 1);
});
