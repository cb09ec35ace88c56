import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { createTestDatabase, type TestDatabase } from '../kit/database.ts';
import { chain, chainbell, chainbellToFull, needsFull, type Run } from './chainbell.ts';

type Shown = {
  watcher_id: number;
  secrets: {
    number: number;
    secret: string;
    public_key: string;
    created_at: string;
    ends_at: string | null;
  }[];
};

describe('secrets on a server', () => {
  let place: TestDatabase;
  const environment = () => ({
    ...chain,
    CHAINBELL_DATABASE_URL: place.url,
    CHAINBELL_SECRET: Buffer.alloc(32, 7).toString('base64'),
  });
  const run = (...words: string[]): Promise<Run> => chainbell(place.dataDir, environment(), ...words);
  const shown = async (...words: string[]): Promise<Shown> => {
    const { code, out, err } = await run('secrets', ...words, '--watcher', 'acme', '--json');
    assert.deepEqual([code, err], [0, '']);
    return JSON.parse(out);
  };
  before(async () => {
    place = await createTestDatabase('postgres');
    assert.equal((await run('keys', 'create', '--watcher', 'acme')).code, 0);
  });
  after(() => place[Symbol.asyncDispose]());

  test('a secret is shown with its public key, and rotated with an overlap', async () => {
    const { watcher_id, secrets } = await shown('show');
    assert.deepEqual([watcher_id, secrets.length, secrets[0]?.ends_at], [1, 1, null]);
    const rotated = await shown('rotate', '--overlap-hours', '2');
    const [next, former] = rotated.secrets;
    assert.ok(next !== undefined && former !== undefined);
    assert.equal(Date.parse(former.ends_at ?? '') - Date.parse(next.created_at), 2 * 3_600_000);
    assert.deepEqual({ ...former, ends_at: null }, secrets[0]);

    const forPeople = await run('secrets', 'show', '--watcher', String(watcher_id));
    assert.deepEqual([forPeople.code, forPeople.err], [0, '']);
    assert.deepEqual(forPeople.out.trimEnd().split('\n'), [
      `2  valid  ${next.secret}  ${next.public_key}`,
      `1  ends ${former.ends_at}  ${former.secret}  ${former.public_key}`,
    ]);
  });

  test(
    'rotated secrets that could not be shown are named, with the command that shows them',
    needsFull,
    async () => {
      const { code, err } = await chainbellToFull(
        place.dataDir,
        environment(),
        ...['secrets', 'rotate', '--watcher', 'acme'],
      );
      assert.equal(code, 69, err);
      assert.match(
        err,
        /rotated, but could not be shown\. To see them: chainbell secrets show --watcher 1\n/,
      );
    },
  );

  test('an unknown watcher exits with 64 and is not created', async () => {
    const { code, out, err } = await run('secrets', 'show', '--watcher', 'nobody');
    assert.deepEqual([code, out], [64, '']);
    assert.match(err, /no watcher has the name or id nobody\. To see all: chainbell watchers list/);
    assert.ok(!(await run('keys', 'list')).out.includes('nobody'));
  });
});
