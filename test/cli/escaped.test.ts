/**
 * Nodes, imports and receivers write parts of these lines, and must not control the terminal with them.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createTally } from '../../src/audit/verify-report.ts';
import { describeAward, describeLog } from '../../src/cli/explained.ts';
import { planLines } from '../../src/cli/repair-steps.ts';
import { createDissentLines, describe } from '../../src/cli/verify.ts';
import { decimal } from '../../src/core/decimal.ts';

const ODD = 'no\u001b[2J\nblock';
const SHOWN = 'no\\u001b[2J\\u000ablock';
const address = `0x${'1'.repeat(40)}` as const;
const hash = `0x${'2'.repeat(64)}` as const;

test('verify and repair escape the texts of nodes', (context) => {
  const { report, countUncompared } = createTally(
    { nodes: 1, needed: 1 },
    { onDifference() {}, onDissent() {} },
  );
  countUncompared(7, 'not_served', ODD);
  report.range = { from: 7, to: 7 };
  report.unanswered.push({ node: 'http://one.example', message: ODD });
  const text = describe(report);
  assert.ok(text.includes(`not compared, block 7: ${SHOWN}\n`), text);
  assert.ok(text.includes(`node http://one.example did not answer: ${SHOWN}\n`), text);
  assert.equal(planLines({ kind: 'sum', block: 7, message: ODD }, false), `cannot repair: ${SHOWN}\n`);

  const written: unknown[] = [];
  const output = context.mock.method(process.stdout, 'write', (part: unknown) => written.push(part) > 0);
  createDissentLines(false)({ node: 'http://one.example', block: 7, message: ODD });
  output.mock.restore();
  assert.deepEqual(written, [`node http://one.example: ${SHOWN}\n`]);
});

test('points explain escapes the texts of imports and of nodes', () => {
  const award = {
    ...{
      rule: ODD,
      version: 1,
      category: ODD,
      user: address,
      points: decimal('1'),
      txHash: hash,
      ordinal: 0,
    },
    ...{ role: 'user' as const, block: undefined, awardedAt: new Date(0), inputs: { 'arg.note': ODD } },
  };
  const verdict = { rule: 'r', version: 1, what: 'awarded' as const, message: ODD, inputs: {} };
  for (const text of [
    describeAward(award),
    describeLog({ ordinal: 0, contract: address, topic: hash, verdicts: [verdict] }),
  ]) {
    assert.ok(text.includes(SHOWN), text);
    assert.ok(!text.includes('\u001b') && !/^block/m.test(text), text);
  }
});
