import assert from 'node:assert/strict';
import { test } from 'node:test';
import { table } from '../../src/cli/table.ts';

test('a table aligns its columns, also with more rows than a call can have arguments', () => {
  const rows = Array.from({ length: 200_000 }, (_, row) => [String(row), 'x']);
  const lines = table([['ROW', 'NAME'], ...rows]).split('\n');
  assert.deepEqual(lines.slice(0, 2), ['ROW     NAME', '0       x']);
  assert.deepEqual(lines.slice(-2), ['199999  x', '']);
});
