import assert from 'node:assert/strict';
import { tmpdir } from 'node:os';
import { describe, test } from 'node:test';
import type { Capacity } from '../../src/domain/capacity.ts';
import { chainbell } from './chainbell.ts';

const run = (...words: string[]) => chainbell(tmpdir(), {}, 'capacity', ...words);
const load = ['--tps', '100', '--addresses', '1000000', '--deliveries', '10'];

describe('chainbell capacity', () => {
  test('prints parts, steps, the next limit and the machine, without a configuration', async () => {
    const { code, out, err } = await run(...load);
    assert.deepEqual({ code, err }, { code: 0, err: '' });
    for (const word of ['follower', 'delivery', 'api', 'database', 'one process on PostgreSQL'])
      assert.match(out, new RegExp(`^${word} `, 'm'));
    assert.match(out, /^Smallest step that carries it: .+\.$/m);
    assert.match(out, /^Next limit: .+, at [\d.,]+ times this load\.$/m);
    assert.match(out, /^Unit costs were measured on .+ cores?, /m);
  });

  test('prints the same as JSON', async () => {
    const { code, out } = await run(...load, '--json');
    const { load: given, parts, carriedBy } = JSON.parse(out) as Capacity;
    assert.equal(code, 0);
    assert.equal(given.addresses, 1_000_000);
    assert.deepEqual(
      parts.map(({ part }) => part),
      ['follower', 'delivery', 'api', 'database'],
    );
    assert.equal(typeof carriedBy, 'string');
  });

  const wrong: [name: string, words: string[], message: RegExp][] = [
    [
      'no number',
      ['--tps', 'many', ...load.slice(2)],
      /--tps <number>.*It must be a number from 0 to 1000000/,
    ],
    ['a negative number', ['--tps=-1', ...load.slice(2)], /--tps/],
    ['a part of an address', ['--tps', '1', '--addresses', '1.5', '--deliveries', '1'], /whole number/],
    ['blocks without time', [...load, '--block-seconds', '0'], /--block-seconds.*from 0.05 to 600/],
    ['too many', ['--tps', '1', '--addresses', '1e11', '--deliveries', '1'], /--addresses/],
    ['no load', ['--tps', '1'], /--addresses <number>.*not specified/],
  ];
  for (const [name, words, message] of wrong)
    test(`refuses ${name}, and says what is right`, async () => {
      const { code, out, err } = await run(...words);
      assert.deepEqual({ code, out }, { code: 64, out: '' });
      assert.match(err, message);
    });
});
