import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { createTestDatabase } from '../kit/database.ts';
import { chain, chainbell } from './chainbell.ts';

const range = ['--from', '1', '--to', '2'];

test('without exactly one of --dry-run and --apply it exits with 64 and advises --dry-run', async () => {
  for (const words of [range, [...range, '--dry-run', '--apply']]) {
    const { code, out, err } = await chainbell(tmpdir(), chain, 'repair', ...words);
    assert.deepEqual([code, out], [64, ''], words.join(' '));
    assert.match(err, /Start with --dry-run/);
  }
});

test('--allow-double-credit with --dry-run, which repairs nothing, exits with 64', async () => {
  const words = [...range, '--dry-run', '--allow-double-credit'];
  const { code, out, err } = await chainbell(tmpdir(), chain, 'repair', ...words);
  assert.deepEqual([code, out], [64, '']);
  assert.match(err, /--allow-double-credit needs --apply/);
});

test('a missing or invalid range exits with 64', async () => {
  for (const words of [
    ['--dry-run'],
    ['--from', '1', '--dry-run'],
    ['--from', '9', '--to', '8', '--dry-run'],
    ['--from', 'x', '--to', '8', '--dry-run'],
  ]) {
    const { code, out } = await chainbell(tmpdir(), chain, 'repair', ...words);
    assert.deepEqual([code, out], [64, ''], words.join(' '));
  }
});

test('an embedded database without blocks has nothing to repair', async () => {
  await using place = await createTestDatabase('embedded');
  const env = { ...chain, CHAINBELL_DATA_DIR: place.dataDir };
  const empty = await chainbell(place.dataDir, env, 'repair', ...range, '--apply');
  assert.deepEqual([empty.code, empty.out], [0, ''], empty.err);
  assert.match(empty.err, /nothing to compare\n0 repairs planned, 0 done/);
});
