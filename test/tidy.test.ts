/**
 * The rules of the code that a program can check: the floor plan, where things may happen, what may not be written.
 * The compiler and the linters check missing files, `any`, default exports and promises.
 */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { floorPlan, importProblem, outside } from './kit/floor-plan.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/** What may happen only in some places: the pattern in the code without its comments, and the places with the reason. */
const ONLY_IN: { what: string; pattern: RegExp; places: Record<string, string> }[] = [
  {
    what: 'reads process.env',
    pattern: /process\.env\b/,
    places: { 'src/config/': 'a configuration has one source' },
  },
  {
    what: "reads the machine's clock",
    pattern: /Date\.now\(|new Date\(\)/,
    places: { 'src/core/clock.ts': 'it is the Clock' },
  },
  {
    what: 'sets a timer',
    pattern: /\bset(Timeout|Interval)\b/,
    places: {
      'src/core/clock.ts': 'it is the Clock',
      'src/core/abort.ts': 'the longest wait for something outside this process',
      'src/chain/': 'deadlines and silence of sockets',
      'src/api/notifications/bulk.ts': "the silence of a stream's socket",
      'src/api/http/body-limit.ts': 'deadlines of bodies and lingering sockets',
      'src/api/http/connection-limit.ts': 'the end of sockets during a stop',
      'src/api/http/memory-queue.ts': 'looks at real sockets',
      'src/store/db/postgres-hosts.ts': 'the time limit of a statement',
      'src/delivery/send.ts': 'the deadline of an attempt, over real sockets',
      'src/delivery/resolver.ts': 'the deadline of a resolution',
      'src/cli/': 'how long a command may take to stop',
    },
  },
  {
    what: 'writes SQL',
    pattern: /\bsql`|\bsql<.*>`/,
    places: { 'src/store/': 'statements live beside their types' },
  },
  {
    what: 'speaks HTTP to others',
    pattern: /\bfetch\(|from 'undici'|new WebSocket\(/,
    places: {
      'src/chain/': 'chain nodes',
      'src/delivery/connections.ts': 'webhooks, behind the guard',
      'src/delivery/send.ts': 'webhooks, behind the guard',
      'src/prices/sources.ts': 'price feeds',
      'src/cli/': 'a command that asks the running service',
    },
  },
  {
    what: 'uses AbortSignal.any or AbortSignal.timeout',
    pattern: /AbortSignal\.(any|timeout)\(/,
    places: { 'src/core/abort.ts': 'startAbort takes their place: they kept memory that only grew' },
  },
  {
    what: 'opens a database',
    pattern: /new PGlite\b|\bextends pg\.|new (pg\.)?(Pool|Client)\(.*connection/,
    places: { 'src/store/db/': 'every caller gets a Database' },
  },
  {
    what: 'listens on a port or socket',
    pattern: /\bcreateServer\(|\bfastify\(/,
    places: {
      'src/api/server.ts': 'the API',
      'src/api/ops/ops.ts': 'the metrics server',
      'src/store/db/socket-server.ts': 'the embedded database for commands',
      'src/store/db/folder-lock.ts': 'the sign that the owner of a data folder runs',
    },
  },
  {
    what: 'creates metrics',
    pattern: /new (Registry|Counter|Gauge|Histogram)\b/,
    places: { 'src/core/metrics': 'one list of all metrics' },
  },
  {
    what: 'starts a thread or a process',
    pattern: /new Worker\(|\b(spawn|fork|execFile)\b\)?\(/,
    places: {
      'src/chain/proof/': 'proof threads',
      'src/cli/': 'the demo starts its parts',
      'src/store/db/folder-lock.ts': '`ps` says when a process started, where there is no /proc',
    },
  },
  {
    what: 'writes to the terminal',
    pattern: /process\.std(out|err)\b|\bconsole\./,
    places: {
      'src/cli/': 'the output of commands',
      'src/main.ts': 'an error before there is a log',
      'src/core/log.ts': 'the log itself',
    },
  },
  {
    what: 'sends a statement to the driver without a time limit of its share',
    pattern: /\bclient\.query\(/,
    places: {
      'src/store/db/postgres-hosts.ts': 'it sets the limit, and checks new connections',
      'src/store/db/postgres-sessions.ts': 'sessions have a limit for all statements',
      'src/store/db/silent-connections.ts': 'it has a limit',
      'src/store/db/postgres.ts': 'a statement whose rows are read one by one, inside answerOf',
    },
  },
  {
    what: 'defines a class that is not an error',
    pattern: /\bclass (?!\w+ extends (?:Error|Fault)\b)\w+/,
    places: { 'src/store/db/postgres-hosts': 'pg is extended by a class' },
  },
];

const LINES_MAX = { program: 400, test: 600 };
const LONGER: Record<string, string> = {
  'console/src/texts.ts': 'the texts of the first screen, and of most others, are in this file',
  'test/config/problems.test.ts': 'one example for each message about a configuration',
};

const PHRASES =
  /\b(is told|are told|was told|tells of|told that|nobody|whoever|is no failure|is no record|anew|bears? out|of its own\b)/g;

/** Folders of test/ that mirror no folder of the program. */
const TEST_FOLDERS = ['kit', 'system', 'sim', 'realchain', 'faults', 'abuse', 'soak'];

const consoleFiles = listFiles('console/{*.ts,src/**/*.{ts,tsx}}');
const programs = [...listFiles('{src,devnet,bench}/**/*.ts'), ...consoleFiles];
const tests = listFiles('test/**/*.ts');
const sources = programs.filter((file) => file.startsWith('src/'));
const texts = listFiles(
  '{*.{md,json,mjs,yaml},{src,devnet,bench,test,docs,.ci}/**/*,console/{*,src/**/*}}',
).filter((file) => !['', '.png'].includes(path.extname(file)) || file.startsWith('.ci/'));

test('every import follows the floor plan', () => {
  const broken = programs.flatMap((file) =>
    listImports(file).flatMap((target) => {
      const problem = importProblem(file, target);
      return problem === undefined ? [] : `${file} imports ${target}: ${problem}`;
    }),
  );
  assertNone(broken);
});

test('no file imports itself by way of others, types included', () => {
  const importsOf = new Map([...programs, ...tests].map((file) => [file, listImports(file)]));
  const found: string[] = [];
  const done = new Set<string>();
  const visit = (file: string, way: readonly string[]) => {
    const start = way.indexOf(file);
    if (start !== -1) found.push([...way.slice(start), file].join(' → '));
    if (done.has(file)) return;
    done.add(file);
    for (const target of importsOf.get(file) ?? []) visit(target, [...way, file]);
  };
  for (const file of importsOf.keys()) visit(file, []);
  assertNone(found);
});

for (const { what, pattern, places } of ONLY_IN) {
  test(`nothing ${what} outside ${Object.keys(places).join(', ')}`, () => {
    const outside = sources.filter((file) => !Object.keys(places).some((place) => file.startsWith(place)));
    assertNone(outside.filter((file) => pattern.test(codeOf(file))).map((file) => `${file} ${what}`));
  });
}

test('every file of the program is reached from src/main.ts', () => {
  const reached = new Set<string>();
  const visit = (file: string) => {
    if (reached.has(file) || !existsSync(path.join(ROOT, file))) return;
    reached.add(file);
    for (const target of listImports(file)) visit(target);
  };
  visit('src/main.ts');
  assertNone(sources.filter((file) => !reached.has(file)).map((file) => `${file} is used by nothing`));
});

test('every file of the console is reached from its entry', () => {
  const reached = new Set(['console/src/main.tsx', 'console/build.ts']);
  for (const file of reached) for (const target of listImports(file)) reached.add(target);
  assertNone(consoleFiles.filter((file) => !reached.has(file)).map((file) => `${file} is used by nothing`));
});

test('the console writes no style attribute, no markup from text, and no secret that outlives its tab', () => {
  const pattern = /\sstyle=|innerHTML|outerHTML|insertAdjacentHTML|document\.write|document\.cookie|eval\(/i;
  assertNone(consoleFiles.filter((file) => pattern.test(codeOf(file))).map((file) => `${file} does`));
  const stores = consoleFiles.filter((file) =>
    /\b(localStorage|sessionStorage|indexedDB)\b/.test(codeOf(file)),
  );
  assert.deepEqual(stores, ['console/src/state/preferences.ts', 'console/src/state/session.ts']);
});

test('every export is used by another file', () => {
  const files = [...programs, ...tests];
  const wordsOf = new Map(files.map((file) => [file, new Set(codeOf(file).match(/[\w$]+/g))]));
  const unused = files.flatMap((file) =>
    Array.from(
      codeOf(file).matchAll(/^export (?:async )?(?:const|function|type|class) (\w+)/gm),
      ([, name = '']) => name,
    )
      .filter((name) => !files.some((other) => other !== file && wordsOf.get(other)?.has(name)))
      .map((name) => `${file} exports ${name}`),
  );
  assertNone(unused);
});

test('files are short, or the reason is written down', () => {
  const long = [...programs, ...tests].filter((file) => {
    const linesMax = file.startsWith('test/') ? LINES_MAX.test : LINES_MAX.program;
    return LONGER[file] === undefined && read(file).split('\n').length - 1 > linesMax;
  });
  assertNone(long);
});

test('the folders of test/ mirror the folders of the program', () => {
  const folders = new Set(
    tests.map((file) => file.split('/')).flatMap(([, folder, rest]) => (rest === undefined ? [] : folder)),
  );
  const known = [...Object.keys(floorPlan), ...Object.keys(outside), 'bench', ...TEST_FOLDERS];
  assertNone(
    [...folders]
      .filter((folder) => folder !== undefined && !known.includes(folder))
      .map((folder) => `test/${folder}`),
  );
});

test('prose has none of the phrases that read like a translation', () => {
  const prose = texts.filter(
    (file) => /^(src|docs|console|README|CHANGELOG|CONTRIBUTING)/.test(file) && /\.(tsx?|md)$/.test(file),
  );
  assertNone(
    prose.flatMap((file) =>
      Array.from(read(file).matchAll(PHRASES), ([phrase]) => `${file} says "${phrase}": use plain words`),
    ),
  );
});

test('every link in the documentation leads to a file and to a heading of it', () => {
  const documents = texts.filter((file) => file.endsWith('.md'));
  const headingsOf = (file: string) =>
    new Set(Array.from(proseOf(file).matchAll(/^#+ (.+)$/gm), ([, heading = '']) => slugOf(heading)));
  assertNone(
    documents.flatMap((file) =>
      Array.from(withoutCodeSpans(proseOf(file)).matchAll(/\]\(([^)#\s]*)(?:#([^)\s]*))?\)/g)).flatMap(
        ([link, target = '', heading]) => {
          if (/^[a-z]+:/.test(target)) return [];
          const to = target === '' ? file : path.posix.join(path.posix.dirname(file), target);
          if (!existsSync(path.join(ROOT, to))) return [`${file} links to ${to}, which is missing: ${link}`];
          if (heading === undefined || !to.endsWith('.md') || headingsOf(to).has(heading)) return [];
          return [`${file} links to a heading that ${to} lacks: ${link}`];
        },
      ),
    ),
  );
});

test('every page of the documentation that a text names exists', () => {
  assertNone(
    texts.flatMap((file) =>
      Array.from(read(file).matchAll(/(?<![\w/.-])docs\/[\w/-]+\.md/g))
        .filter(([page]) => !existsSync(path.join(ROOT, page)))
        .map(([page]) => `${file} names ${page}`),
    ),
  );
});

test('nothing is left to do, and nothing points at one machine', () => {
  const unfinished = /\b(TO|FIX)(DO|ME)\b|\bX{3}\b/;
  const machine = /(^|[\s'"`(=:])\/(home|root|work|tmp)\//m;
  assertNone(
    texts.flatMap((file) => [
      ...(unfinished.test(read(file)) ? [`${file} has something left to do`] : []),
      ...(machine.test(read(file)) ? [`${file} names a folder of one machine`] : []),
    ]),
  );
  for (const lock of ['package-lock.json', 'tools/package-lock.json', 'tools/checks/package-lock.json'])
    assert.ok(!read(lock).includes('"resolved"'), `${lock} names the host of one registry`);
});

test('generated files are what `npm run generate` makes', async () => {
  const manifest = JSON.parse(read('package.json')) as { scripts: { generate: string } };
  for (const command of manifest.scripts.generate.split(' && ')) {
    const words = command.replace('node bootstrap.mjs ', '').split(' ');
    await promisify(execFile)(process.execPath, [...words, '--check'], { cwd: ROOT });
  }
});

/** The project's own files that a file imports or starts, as paths from the root. */
function listImports(file: string): string[] {
  const specifiers = codeOf(file).matchAll(/(?:\bfrom|\bimport|\bimport\(|\bnew URL\()\s*'(\.[^']+\.tsx?)'/g);
  return Array.from(specifiers, ([, specifier = '']) => path.posix.join(path.posix.dirname(file), specifier));
}

/** A Markdown file without its code blocks. */
function proseOf(file: string): string {
  return read(file).replaceAll(/^```[\s\S]*?^```/gm, '');
}

/** A key such as `points.rules[](accrual)` looks like a link but is none. */
function withoutCodeSpans(text: string): string {
  return text.replaceAll(/`[^`\n]*`/g, '');
}

/** The anchor that GitHub gives a heading. */
function slugOf(heading: string): string {
  const text = heading.replaceAll(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase();
  return text.replaceAll(/[^\p{L}\p{N}_ -]/gu, '').replaceAll(' ', '-');
}

function codeOf(file: string): string {
  return read(file)
    .replaceAll(/\/\*[\s\S]*?\*\//g, '')
    .replaceAll(/(^|\s)\/\/ .*$/gm, '');
}

function read(file: string): string {
  return readFileSync(path.join(ROOT, file), 'utf8');
}

function listFiles(pattern: string): string[] {
  const isGenerated = (name: string) =>
    name.startsWith('bench/results') || name.endsWith('package-lock.json') || /^console\/dist/.test(name);
  return globSync(pattern, { cwd: ROOT, exclude: isGenerated }).sort();
}

function assertNone(broken: string[]): void {
  if (broken.length > 0) assert.fail(`\n${broken.join('\n')}`);
}
