/**
 * Statements that get no answer, and statements that are wrong.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answerOf, isGivenUp } from '../../../src/store/db/postgres-hosts.ts';
import { sql } from '../../../src/store/db/sql.ts';
import { onPostgres } from '../../kit/each-database.ts';

test('a statement without an answer is given up after its limit', async () => {
  const asked = answerOf(() => {}, 10);
  await assert.rejects(asked, isGivenUp);
});

test('a statement that the driver refuses to send fails at once', async () => {
  const asked = answerOf(() => {
    throw new TypeError('refused');
  });
  await assert.rejects(asked, /refused/);
});

onPostgres(({ database }) => {
  test('the stack of an unexpected error leads to the code that made the statement', async () => {
    await assert.rejects(
      async () => database().query(sql`select 1 / 0`),
      ({ message, stack = '' }: Error) =>
        /division by zero/.test(message) && stack.includes('given-up.test.ts'),
    );
  });
});
