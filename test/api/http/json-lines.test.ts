import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { GROUP_LINES_MAX, LINE_CHARACTERS_MAX, readLineGroups } from '../../../src/api/http/json-lines.ts';

async function* inChunks(text: string, bytes: number): AsyncGenerator<Buffer> {
  const buffer = Buffer.from(text);
  for (let start = 0; start < buffer.length; start += bytes) yield buffer.subarray(start, start + bytes);
}

const groupsOf = (text: string, bytes = 64 * 1024) => Array.fromAsync(readLineGroups(inChunks(text, bytes)));

test('the groups are the same however the body arrives', async () => {
  const line = fc.oneof(fc.string({ unit: 'grapheme' }), fc.constantFrom('', ' ', '{}', 'ä€😀'));
  await fc.assert(
    fc.asyncProperty(fc.array(line), fc.integer({ min: 1, max: 9 }), async (lines, bytes) => {
      const text = lines.join('\n');
      // JSON's white space is blank. An ideographic space isn't.
      const expected = text.split('\n').filter((one) => /[^\t-\r ]/.test(one));
      for (const size of [bytes, 64 * 1024])
        assert.deepEqual(await groupsOf(text, size), [{ lines: expected, isLast: true }]);
    }),
  );
});

test('a group is full before the next one begins, and the last one is known to be the last', async () => {
  for (const count of [0, 1, GROUP_LINES_MAX, GROUP_LINES_MAX + 1, 2 * GROUP_LINES_MAX + 500]) {
    const groups = await groupsOf('1\n'.repeat(count));
    const full = Math.max(0, Math.ceil(count / GROUP_LINES_MAX) - 1);
    assert.deepEqual(
      groups.map(({ lines, isLast }) => [lines.length, isLast]),
      [
        ...Array.from({ length: full }, () => [GROUP_LINES_MAX, false]),
        [count - full * GROUP_LINES_MAX, true],
      ],
    );
  }
});

test('an over-long line is detected, wherever it is cut', async () => {
  const longest = 'x'.repeat(LINE_CHARACTERS_MAX);
  const text = `1\n${longest}\n${longest}y\n${'z'.repeat(1_000_000)}\n2\n${longest}y`;
  for (const bytes of [1_000, LINE_CHARACTERS_MAX, 64 * 1024, 10_000_000]) {
    const [group] = await groupsOf(text, bytes);
    assert.deepEqual(group?.lines, ['1', longest, undefined, undefined, '2', undefined]);
  }
});

test('nothing is read before it is requested', async () => {
  let readBytes = 0;
  async function* endless(): AsyncGenerator<Buffer> {
    for (;;) {
      const chunk = Buffer.from('1\n'.repeat(100));
      readBytes += chunk.length;
      yield chunk;
    }
  }
  const groups = readLineGroups(endless());
  for (const count of [1, 2, 3]) {
    await groups.next();
    assert.ok(readBytes <= 2 * (count * GROUP_LINES_MAX + 100), `${readBytes} bytes for ${count} groups`);
  }
});
