import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nameProblem } from '../../src/domain/watcher-name.ts';

test('the name of a new watcher is one printable line of at most 100 characters', () => {
  for (const name of ['acme', 'Größe GmbH & Co.', '株式会社', "it's", '1', '🔔'.repeat(100)])
    assert.equal(nameProblem(name), undefined, name);
  for (const [name, problem] of [
    ['', /needs a name/],
    [' \t', /needs a name/],
    ['two\nlines', /line breaks or control characters/],
    ['\u001b[31mred', /control characters/],
    ['nul\0', /control characters/],
    ['half \ud800', /control characters/],
    ['right\u202eleft', /control characters/],
    ['line\u2028separator', /control characters/],
    ['invisible\u200bmark', /control characters/],
    ['space ', /begin or end with a space/],
    ['x'.repeat(101), /may have 100 characters/],
  ] as const)
    assert.match(nameProblem(name) ?? 'accepted', problem, JSON.stringify(name));
});
