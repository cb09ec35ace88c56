/**
 * Calibration observes from a chain's blocks which checks the chain honors, and refuses blocks accordingly.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { CheckResult, Checks } from '../../../src/chain/proof/block-checks.ts';
import {
  type Calibration,
  type CalibrationOptions,
  createCalibration,
} from '../../../src/chain/proof/calibration.ts';

const checksOf = (
  headerHash: CheckResult,
  transactionsRoot: CheckResult,
  receiptsRoot: CheckResult,
): Checks => ({
  ...{ headerHash, transactionsRoot, withdrawalsRoot: 'none', receiptsRoot },
  isEmpty: false,
});
const whole = checksOf('holds', 'holds', 'holds');
const empty: Checks = { ...whole, isEmpty: true };
const withoutReceipts = checksOf('holds', 'holds', 'fails');

/** An unknown chain with one node. */
const fresh: CalibrationOptions = { mode: 'auto', chainId: 31_337, nodeCount: 1, enforced: [] };

/** A calibration that has seen these recent blocks of one node. */
function calibrated(sample: readonly Checks[], options: Partial<CalibrationOptions> = {}): Calibration {
  const calibration = createCalibration({ ...fresh, ...options });
  calibration.addSample(sample);
  calibration.endSample();
  return calibration;
}
const refuses = (calibration: Calibration, checks: Checks, message = /is not proved/) =>
  assert.throws(() => calibration.judge('block 7', checks), { name: 'Fault', code: 'inconsistent', message });

describe('auto', () => {
  test('a check that recent blocks keep is enforced forever', () => {
    const calibration = calibrated([whole, whole, whole]);
    for (let count = 0; count < 30; count += 1) {
      refuses(calibration, withoutReceipts, /block 7 is not proved: its receipts root does not hold/);
    }
    assert.equal(calibration.states().receiptsRoot, 'enforced');
    assert.equal(calibration.judge('block 7', whole), true);
  });

  test('a check that recent blocks break is off, and the others are enforced', () => {
    const calibration = calibrated([withoutReceipts, withoutReceipts, withoutReceipts]);
    assert.deepEqual(calibration.states(), {
      ...{ headerHash: 'enforced', transactionsRoot: 'enforced' },
      ...{ withdrawalsRoot: 'calibrating', receiptsRoot: 'off' },
    });
    assert.equal(calibration.judge('block 7', withoutReceipts), false);
    refuses(calibration, checksOf('fails', 'holds', 'fails'));
  });

  test('two of five nodes that break a check turn nothing off, but three do', () => {
    const broken = [withoutReceipts, withoutReceipts, withoutReceipts];
    for (const [breaking, state] of [
      [2, 'calibrating'],
      [3, 'off'],
    ] as const) {
      const calibration = createCalibration({ ...fresh, nodeCount: 5 });
      for (let node = 0; node < breaking; node += 1) calibration.addSample(broken);
      calibration.endSample();
      assert.equal(calibration.states().receiptsRoot, state);
    }
    const asked = createCalibration({ ...fresh, nodeCount: 5, quorum: 2 });
    for (let node = 0; node < 2; node += 1) asked.addSample(broken);
    asked.endSample();
    assert.equal(asked.states().receiptsRoot, 'off', 'chain.quorum says how many');
  });

  test('one spoiled recent block turns nothing off', () => {
    assert.equal(calibrated([withoutReceipts, whole, whole, whole]).states().receiptsRoot, 'enforced');
  });

  test('a node that drops data turns nothing off if another one has the data', () => {
    const calibration = createCalibration(fresh);
    assert.equal(calibration.addSample([withoutReceipts, withoutReceipts, withoutReceipts]), false);
    calibration.addSample([whole, whole, whole]);
    calibration.endSample();
    assert.equal(calibration.states().receiptsRoot, 'enforced');
  });

  test('empty blocks decide only about the header', () => {
    const calibration = calibrated(Array.from({ length: 20 }, () => empty));
    assert.deepEqual(calibration.states(), {
      ...{ headerHash: 'enforced', transactionsRoot: 'calibrating' },
      ...{ withdrawalsRoot: 'calibrating', receiptsRoot: 'calibrating' },
    });
    for (let count = 0; count < 3; count += 1) calibration.judge('block', whole);
    assert.equal(calibration.states().receiptsRoot, 'enforced');
  });

  test('a check whose constants empty blocks lack is off, because otherwise each empty block would hold the follower', () => {
    const odd: Checks = { ...checksOf('holds', 'holds', 'fails'), isEmpty: true };
    const calibration = calibrated([whole, odd, whole, odd, odd, odd]);
    assert.equal(calibration.states().receiptsRoot, 'off');
  });

  test('without recent blocks the first ones decide', () => {
    const honest = createCalibration(fresh);
    assert.equal(honest.judge('block 1', whole), true);
    refuses(honest, withoutReceipts);
    const other = createCalibration(fresh);
    for (let count = 0; count < 3; count += 1) {
      assert.equal(other.judge('block', checksOf('fails', 'fails', 'fails')), false);
    }
    assert.equal(other.states().receiptsRoot, 'off');
  });

  test('with several nodes, only two that agree turn a check off', () => {
    const broken = [withoutReceipts, withoutReceipts, withoutReceipts];
    const calibration = calibrated(broken, { nodeCount: 2 });
    assert.equal(calibration.states().receiptsRoot, 'calibrating');
    for (let count = 0; count < 10; count += 1) refuses(calibration, withoutReceipts);
    assert.equal(calibration.needsSample(), true);
    calibration.addSample(broken);
    calibration.endSample();
    assert.equal(calibration.states().receiptsRoot, 'calibrating', 'the same node again is no second one');
    calibration.addSample(broken);
    calibration.addSample(broken);
    calibration.endSample();
    assert.equal(calibration.states().receiptsRoot, 'off');
    assert.equal(calibration.judge('block 7', withoutReceipts), false);
  });

  test('a node without the block that broke an open check leaves the doubt, so the other nodes are sampled too', () => {
    const calibration = calibrated([empty, empty, empty], { nodeCount: 3 });
    assert.equal(calibration.addSample([empty]), true, 'no block has broken a check');
    refuses(calibration, withoutReceipts);
    assert.equal(calibration.needsSample(), true);
    assert.equal(
      calibration.addSample([empty, empty, empty]),
      false,
      'the first node does not have the block',
    );
    for (let node = 2; node <= 3; node += 1)
      assert.equal(calibration.addSample([empty, withoutReceipts]), false);
    calibration.endSample();
    assert.equal(calibration.states().receiptsRoot, 'off');
    assert.equal(calibration.judge('block 7', withoutReceipts), false);
  });

  test('a node that has the block and keeps the check ends the doubt', () => {
    const calibration = calibrated([empty, empty, empty], { nodeCount: 3 });
    refuses(calibration, withoutReceipts);
    assert.equal(calibration.addSample([empty, whole]), true);
  });

  test('checks observed before a restart are enforced after it, whatever the nodes then answer', () => {
    const observed = ['headerHash', 'transactionsRoot', 'receiptsRoot'] as const;
    const calibration = createCalibration({ ...fresh, enforced: observed });
    calibration.addSample([withoutReceipts, withoutReceipts, withoutReceipts]);
    calibration.endSample();
    assert.equal(calibration.states().receiptsRoot, 'enforced');
    refuses(calibration, withoutReceipts);
  });

  test('checks that another process has observed meanwhile are enforced, even if this process observed nothing for them', () => {
    const calibration = calibrated([withoutReceipts, withoutReceipts, withoutReceipts]);
    assert.equal(calibration.states().receiptsRoot, 'off');
    calibration.enforce(['receiptsRoot', 'a check of a later version']);
    refuses(calibration, withoutReceipts);
  });

  test('nothing is sampled if another process has observed all checks', () => {
    const calibration = createCalibration(fresh);
    calibration.enforce(['headerHash', 'transactionsRoot', 'receiptsRoot']);
    assert.equal(calibration.needsSample(), true);
    calibration.enforce(['withdrawalsRoot']);
    assert.equal(calibration.needsSample(), false);
  });

  for (const chainId of [1, 11_155_111, 17_000, 560_048]) {
    test(`chain ${chainId} is Ethereum's: its first block must be proved`, () => {
      const calibration = createCalibration({ ...fresh, chainId });
      assert.equal(calibration.needsSample(), false);
      refuses(calibration, withoutReceipts);
      refuses(
        calibration,
        checksOf('holds', 'unknown', 'unknown'),
        /its transactions root cannot be computed/,
      );
      assert.equal(calibration.judge('block 1', whole), true);
    });
  }

  test('withdrawals decide only if a block lists some', () => {
    const listed: Checks = { ...whole, withdrawalsRoot: 'holds' };
    const calibration = calibrated([whole, whole, whole]);
    assert.equal(calibration.states().withdrawalsRoot, 'calibrating');
    for (let count = 0; count < 3; count += 1) calibration.judge('block', listed);
    assert.equal(calibration.states().withdrawalsRoot, 'enforced');
    refuses(calibration, { ...whole, withdrawalsRoot: 'fails' }, /its withdrawals root does not hold/);
  });

  test('on other chains, a transaction type without a known encoding is accepted as not proved, whatever is enforced', () => {
    const calibration = calibrated([whole, whole, whole]);
    assert.equal(calibration.judge('block 7', checksOf('holds', 'unknown', 'holds')), false);
  });
});

test('strict refuses all blocks that are not proved, from the first one on', () => {
  const calibration = createCalibration({ ...fresh, mode: 'strict' });
  assert.equal(calibration.needsSample(), false);
  assert.equal(calibration.judge('block 7', whole), true);
  assert.equal(calibration.judge('block 7', empty), true);
  refuses(calibration, withoutReceipts);
  refuses(calibration, checksOf('holds', 'unknown', 'unknown'), /its transactions root cannot be computed/);
});

test('off stays off, whatever other processes have observed', () => {
  const calibration = createCalibration({ ...fresh, mode: 'off' });
  calibration.enforce(['headerHash']);
  assert.equal(calibration.states().headerHash, 'off');
});
