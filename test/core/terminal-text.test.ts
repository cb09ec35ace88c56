import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import fc from 'fast-check';
import { printable, shellWord, shownText } from '../../src/core/terminal-text.ts';

test('plain names are shown unchanged, and others in a form that stays on one line', () => {
  for (const name of ['acme', 'Acme & Söhne', '7', 'ACME/eu-1', '名前']) assert.equal(shownText(name), name);
  assert.equal(shownText('a\nb'), '"a\\nb"');
  assert.equal(shownText('\u001b[31mred'), '"\\u001b[31mred"');
  assert.equal(shownText('"'), '"\\""');
  assert.equal(shownText(' a'), '" a"');
  assert.equal(shownText('a\u202eb'), '"a\\u202eb"');
  assert.equal(shownText(''), '""');
});

test('no text breaks its line or controls the terminal, and each can be parsed back', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (text) => {
      const shown = shownText(text);
      assert.doesNotMatch(shown, /[\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]/u);
      assert.equal(shown.startsWith('"') ? JSON.parse(shown) : shown, text);
    }),
  );
});

test('a printable text is unchanged, except for characters that control the terminal', () => {
  assert.equal(
    printable('node “a”: no\u001b[2J\u009b1m block\n'),
    'node “a”: no\\u001b[2J\\u009b1m block\\u000a',
  );
  assert.equal(printable('名前, "é" \\n'), '名前, "é" \\n');
});

test('a shell reads every quoted text as one word', () => {
  for (const text of ['acme', "it's", '-x', 'a b', '$(reboot)', '`reboot`', 'a"b', '*', '~', 'a\nb'])
    assert.equal(execFileSync('sh', ['-c', `printf %s ${shellWord(text)}`], { encoding: 'utf8' }), text);
});
