/**
 * Runs the SQL of docs/how-to/credit-deposits.md exactly as it is printed.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { PGlite } from '@electric-sql/pglite';
import { readBlocks } from '../kit/documentation.ts';

const [bodyTables = '', bodyCredit = '', headerTables = '', headerCredit = ''] = readBlocks(
  'how-to/credit-deposits.md',
)
  .filter(({ language }) => language === 'sql')
  .map(({ text }) => text);

const WATCHED = "'00000000-0000-4000-8000-000000000001'";
const LARGEST = (2n ** 256n - 1n).toString();

test('the ledger that reads only the body credits the largest amount exactly, and a repeated id adds no deposit', async () => {
  const database = new PGlite();
  try {
    await database.exec(bodyTables);
    await database.exec(fill(bodyCredit, ['17', WATCHED, "'ETH'", LARGEST]));
    const [, insert = ''] = /^begin;\n(insert into deposit [^;]+;)/m.exec(bodyCredit) ?? [];
    const [repeated] = await database.exec(fill(insert, ['17', WATCHED, "'ETH'", LARGEST]));
    assert.equal(repeated?.affectedRows, 0);
    await database.exec(fill(bodyCredit, ['18', WATCHED, "'ETH'", '1']));
    const { rows } = await database.query('select balance::text from account');
    assert.deepEqual(rows, [{ balance: (2n ** 256n).toString() }]);
  } finally {
    await database.close();
  }
});

test('the ledger that reads the headers reverses a credit, and a late lower revision changes nothing', async () => {
  const database = new PGlite();
  try {
    await database.exec(headerTables);
    for (const revision of ['0', '1', '0'])
      await database.exec(fill(headerCredit, ['17', revision, WATCHED, "'ETH'", '5']));
    await database.exec(fill(headerCredit, ['18', '2', WATCHED, "'ETH'", LARGEST]));
    const { rows } = await database.query(
      'select sum(amount)::text as balance from deposit where revision % 2 = 0',
    );
    assert.deepEqual(rows, [{ balance: LARGEST }]);
  } finally {
    await database.close();
  }
});

/** The statements with SQL literals instead of $1, $2 and so on. */
function fill(statements: string, literals: readonly string[]): string {
  return statements.replaceAll(/\$(\d)/g, (_, position) => {
    const literal = literals[Number(position) - 1];
    assert.ok(literal !== undefined, `$${position} has a value`);
    return literal;
  });
}
