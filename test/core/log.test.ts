/**
 * Runs a program that logs to a standard error that can't be written, because the tests' own must stay as it is.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, open, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';

const LINES = 20_000;
/** Each write to it fails as on a full disk. */
const FULL = '/dev/full';
const needsFull = { skip: existsSync(FULL) ? false : `needs ${FULL}` };

/**
 * Logs lines of different lengths on a full disk, until none fits. Then replaces standard error by a file that can be written, and
 * logs two more.
 */
const programOf = (format: string, file: string) => `
  import { closeSync, openSync } from 'node:fs';
  import { setTimeout as delay } from 'node:timers/promises';
  import { createLog } from ${JSON.stringify(new URL('../../src/core/log.ts', import.meta.url).href)};
  const log = createLog({ level: 'info', format: '${format}' });
  for (let line = 1; line <= ${LINES}; line += 1) {
    log.info({ line, filler: 'x'.repeat(line % 120) }, 'test.line');
    if (line % 1_000 === 0) await delay(1);
  }
  closeSync(2);
  openSync(${JSON.stringify(file)}, 'a');
  log.info({ filler: 'x'.repeat(100) }, 'test.after');
  await delay(10);
  log.info({ filler: 'x'.repeat(100) }, 'test.last');
  await delay(10);`;

for (const format of ['json', 'pretty'])
  test(
    `a ${format} log on a full disk ends nothing, and says later how many lines it dropped`,
    needsFull,
    async () => {
      const folder = await mkdtemp(path.join(tmpdir(), 'chainbell-log-'));
      try {
        await using full = await open(FULL, 'w');
        const file = path.join(folder, 'log');
        const words = ['--input-type=module', '--eval', programOf(format, file)];
        const child = spawn(process.execPath, words, { stdio: ['ignore', 'ignore', full.fd] });
        assert.deepEqual(await once(child, 'exit'), [0, null]);
        const written = await readFile(file, 'utf8');
        const kept = written.match(/test\.line/g)?.length ?? 0;
        const dropped = Number(
          /logs\.dropped.*?"lines":(\d+)|"lines":(\d+).*?logs\.dropped/.exec(written)?.slice(1).join(''),
        );
        assert.ok(kept > 1_000, `${kept} lines were kept`);
        assert.ok(dropped > 0);
        assert.match(written.trimEnd().split('\n').at(-1) ?? '', /test\.last/);
        // The first line after the repair may find no room yet, but makes some.
        const after = written.includes('test.after') ? 0 : 1;
        assert.equal(kept + dropped - after, LINES);
      } finally {
        await rm(folder, { recursive: true });
      }
    },
  );

test('a log whose reader has gone ends nothing', async () => {
  for (const format of ['json', 'pretty']) {
    const program = programOf(format, '/dev/null');
    const child = spawn(process.execPath, ['--input-type=module', '--eval', program], {
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    child.stderr?.destroy();
    assert.deepEqual(await once(child, 'exit'), [0, null]);
  }
});
