import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';

const interrupt = new URL('../../src/cli/interrupt.ts', import.meta.url).href;

test('a command that a signal ends at once says what to do, and exits with 75', async () => {
  const program = `
    const { endingWhenInterrupted } = await import(${JSON.stringify(interrupt)});
    await endingWhenInterrupted('Run it again', async () => {
      process.stdout.write('works');
      await new Promise((resolve) => setTimeout(resolve, 2 ** 31 - 1));
    });`;
  const child = spawn(process.execPath, ['--input-type=module', '--eval', program]);
  const [ended, shown] = [once(child, 'close'), text(child.stderr)];
  await once(child.stdout, 'data');
  child.kill('SIGTERM');
  assert.deepEqual(await ended, [75, null]);
  assert.equal(await shown, 'chainbell: interrupted. Run it again\n');
});
