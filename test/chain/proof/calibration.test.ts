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
  ...{ headerHash, transactionsRoot, transactionHashes: 'none', withdrawalsRoot: 'none', receiptsRoot },
  ...{ isEmpty: false, unencodableTypes: [] },
});
const whole = checksOf('holds', 'holds', 'holds');
const empty: Checks = { ...whole, isEmpty: true };
const withoutReceipts = checksOf('holds', 'holds', 'fails');

/** A block with a transaction of a type that can't be encoded, nor its receipt. */
const odd = (...types: string[]): Checks => ({
  ...checksOf('holds', 'unknown', 'unknown'),
  unencodableTypes: types,
});
/** A block with a transaction of a type that can't be encoded, but whose receipt can. */
const provedOdd = (...types: string[]): Checks => ({ ...odd(...types), receiptsRoot: 'holds' });

/** An unknown chain with one node. */
const fresh: CalibrationOptions = { mode: 'auto', chainId: 31_337, nodeCount: 1, enforced: [] };

/** A calibration that has seen these recent blocks of one node. */
function calibrated(sample: readonly Checks[], options: Partial<CalibrationOptions> = {}): Calibration {
  const calibration = createCalibration({ ...fresh, ...options });
  calibration.addSample(1, sample);
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
      ...{ transactionHashes: 'calibrating', withdrawalsRoot: 'calibrating', receiptsRoot: 'off' },
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
      for (let node = 1; node <= breaking; node += 1) calibration.addSample(node, broken);
      calibration.endSample();
      assert.equal(calibration.states().receiptsRoot, state);
    }
    const asked = createCalibration({ ...fresh, nodeCount: 5, quorum: 2 });
    for (let node = 1; node <= 2; node += 1) asked.addSample(node, broken);
    asked.endSample();
    assert.equal(asked.states().receiptsRoot, 'off', 'chain.quorum says how many');
  });

  test('one spoiled recent block turns nothing off', () => {
    assert.equal(calibrated([withoutReceipts, whole, whole, whole]).states().receiptsRoot, 'enforced');
  });

  test('a node that drops data turns nothing off if another one has the data', () => {
    const calibration = createCalibration({ ...fresh, nodeCount: 3 });
    const blocks = [whole, whole, whole];
    calibration.addSample(1, [withoutReceipts, withoutReceipts, withoutReceipts]);
    assert.equal(calibration.addSample(2, blocks), false, 'the third node is asked');
    assert.equal(calibration.addSample(3, blocks), true);
    calibration.endSample();
    assert.equal(calibration.states().receiptsRoot, 'enforced');
  });

  test('empty blocks decide only about the header', () => {
    const calibration = calibrated(Array.from({ length: 20 }, () => empty));
    assert.deepEqual(calibration.states(), {
      ...{ headerHash: 'enforced', transactionsRoot: 'calibrating' },
      ...{ transactionHashes: 'calibrating', withdrawalsRoot: 'calibrating', receiptsRoot: 'calibrating' },
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
    assert.equal(calibration.needsSample([]), true);
    calibration.addSample(1, broken);
    calibration.endSample();
    assert.equal(calibration.states().receiptsRoot, 'calibrating', 'the same node again is no second one');
    calibration.addSample(1, broken);
    calibration.addSample(2, broken);
    calibration.endSample();
    assert.equal(calibration.states().receiptsRoot, 'off');
    assert.equal(calibration.judge('block 7', withoutReceipts), false);
  });

  test('a node without the block that broke an open check leaves the doubt, so the other nodes are sampled too', () => {
    const calibration = calibrated([empty, empty, empty], { nodeCount: 3 });
    assert.equal(calibration.addSample(1, [empty]), false, 'a quorum is sampled');
    assert.equal(calibration.addSample(2, [empty]), true, 'no block has broken a check');
    calibration.endSample();
    refuses(calibration, withoutReceipts);
    assert.equal(calibration.needsSample([]), true);
    assert.equal(
      calibration.addSample(1, [empty, empty, empty]),
      false,
      'the first node does not have the block',
    );
    for (let node = 2; node <= 3; node += 1)
      assert.equal(calibration.addSample(node, [empty, withoutReceipts]), false);
    calibration.endSample();
    assert.equal(calibration.states().receiptsRoot, 'off');
    assert.equal(calibration.judge('block 7', withoutReceipts), false);
  });

  test('a block that keeps the check ends the doubt once a quorum is sampled', () => {
    const calibration = calibrated([empty, empty, empty], { nodeCount: 3 });
    refuses(calibration, withoutReceipts);
    assert.equal(calibration.addSample(1, [empty, whole]), false);
    assert.equal(calibration.addSample(2, [empty]), true);
  });

  test('one node of three that makes up blocks which keep a check has nothing enforced, in whichever order they are sampled', () => {
    const madeUp = [whole, whole, whole];
    const real = [withoutReceipts, withoutReceipts, withoutReceipts];
    for (const liar of [1, 2, 3]) {
      const calibration = createCalibration({ ...fresh, nodeCount: 3 });
      for (let node = 1; node <= 3; node += 1)
        if (calibration.addSample(node, node === liar ? madeUp : real)) break;
      calibration.endSample();
      assert.equal(calibration.states().receiptsRoot, 'off', `node ${liar} lies`);
      assert.equal(calibration.judge('block 7', withoutReceipts), false);
    }
  });

  test('one of several nodes has no check enforced with the blocks that are used, however many, but they make samples due', () => {
    const calibration = calibrated([empty, empty, empty], { nodeCount: 3 });
    let samples = 0;
    for (let block = 0; block < 1_000; block += 1) {
      calibration.judge('block', whole);
      if (!calibration.needsSample([])) continue;
      samples += 1;
      calibration.addSample(1, [whole, whole, whole]);
      calibration.endSample();
    }
    assert.equal(calibration.states().receiptsRoot, 'calibrating');
    assert.equal(samples, 9, 'after 3, 6, 12 … blocks');
    calibration.addSample(2, [whole, whole, whole]);
    calibration.endSample();
    assert.equal(calibration.states().receiptsRoot, 'enforced', 'the second node agrees');
  });

  test('one of two nodes that breaks a check in every block does not have the nodes sampled for each of them', () => {
    const calibration = createCalibration({ ...fresh, nodeCount: 2 });
    const sampleBoth = () => {
      calibration.addSample(1, [withoutReceipts, withoutReceipts, withoutReceipts]);
      calibration.addSample(2, [whole, whole, whole]);
      calibration.endSample();
    };
    sampleBoth();
    let samples = 0;
    for (let block = 0; block < 1_000; block += 1) {
      refuses(calibration, withoutReceipts);
      calibration.judge('block', whole);
      if (!calibration.needsSample([1, 2])) continue;
      samples += 1;
      sampleBoth();
    }
    assert.equal(samples, 19, 'after 1, 2, 4 … refused and 3, 6, 12 … used blocks');
  });

  test('a node that the last sample lacked makes the next one due while a check is in doubt', () => {
    const calibration = calibrated([withoutReceipts, withoutReceipts, withoutReceipts], { nodeCount: 2 });
    refuses(calibration, withoutReceipts);
    calibration.addSample(1, [withoutReceipts]);
    calibration.endSample();
    assert.equal(calibration.needsSample([1]), false);
    assert.equal(calibration.needsSample([1, 2]), true);
    calibration.addSample(1, [withoutReceipts]);
    calibration.addSample(2, []);
    calibration.endSample();
    assert.equal(calibration.needsSample([1, 2]), false, 'it gave no blocks');
  });

  test('checks observed before a restart are enforced after it, whatever the nodes then answer', () => {
    const observed = ['headerHash', 'transactionsRoot', 'receiptsRoot'] as const;
    const calibration = createCalibration({ ...fresh, enforced: observed });
    calibration.addSample(1, [withoutReceipts, withoutReceipts, withoutReceipts]);
    calibration.endSample();
    assert.equal(calibration.states().receiptsRoot, 'enforced');
    refuses(calibration, withoutReceipts);
  });

  test('checks that another process has observed meanwhile are enforced, even if this process observed nothing for them', () => {
    const calibration = calibrated([withoutReceipts, withoutReceipts, withoutReceipts]);
    assert.equal(calibration.states().receiptsRoot, 'off');
    calibration.enforce(['receiptsRoot', 'a check of a later version'], []);
    refuses(calibration, withoutReceipts);
  });

  test('nothing is sampled if another process has observed all checks', () => {
    const calibration = createCalibration(fresh);
    calibration.enforce(['headerHash', 'transactionsRoot', 'transactionHashes', 'receiptsRoot'], []);
    assert.equal(calibration.needsSample([]), true);
    calibration.enforce(['withdrawalsRoot'], []);
    assert.equal(calibration.needsSample([]), false);
  });

  for (const chainId of [1, 11_155_111, 17_000, 560_048]) {
    test(`chain ${chainId} is Ethereum's: its first block must be proved`, () => {
      const calibration = createCalibration({ ...fresh, chainId });
      assert.equal(calibration.needsSample([]), false);
      refuses(calibration, withoutReceipts);
      refuses(calibration, odd('0x7e'), /its transactions root cannot be computed/);
      refuses(calibration, provedOdd('0x6a'), /of type 0x6a, .* set chain\.unprovedTypes: \["0x6a"\]/);
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
});

describe('transaction types that Chainbell cannot encode, in auto', () => {
  test('are refused once a root is enforced, and the error says what to do', () => {
    for (const root of ['transactionsRoot', 'receiptsRoot']) {
      const calibration = createCalibration({ ...fresh, enforced: [root] });
      refuses(calibration, odd('0x7e'), /block 7 is not proved: .* cannot be computed.* of type 0x7e/);
      refuses(calibration, odd('0x7e', 'unsigned'), /set chain\.unprovedTypes: \["0x7e", "unsigned"\]/);
    }
  });

  test('are accepted if the receipts root proves that the chain has the type, and the block is not proved in full', () => {
    const calibration = calibrated([whole, whole, whole]);
    assert.equal(calibration.judge('block 7', provedOdd('0x6a')), false);
    assert.deepEqual(calibration.observedTypes(), []);
    refuses(calibration, odd('0x6a'));
  });

  test('are accepted forever if the chain had them before a root was enforced, also after a restart', () => {
    const calibration = calibrated([odd('0x7e'), whole, whole, whole]);
    assert.equal(calibration.judge('block 7', odd('0x7e')), false);
    refuses(calibration, odd('0x7d', '0x7e'), /of type 0x7d,/);
    const restarted = createCalibration({
      ...fresh,
      enforced: ['receiptsRoot'],
      observedTypes: calibration.observedTypes(),
    });
    assert.equal(restarted.judge('block 7', odd('0x7e')), false);
  });

  test('are observed in the first blocks too if there are no recent ones', () => {
    const calibration = createCalibration(fresh);
    assert.equal(calibration.judge('block 1', odd('0x7e')), false);
    for (let count = 0; count < 3; count += 1) calibration.judge('block', whole);
    assert.equal(calibration.judge('block 7', odd('0x7e')), false);
    refuses(calibration, odd('0x7d'));
  });

  test('are not observed in what a single node shows after a root is enforced', () => {
    const calibration = createCalibration({ ...fresh, enforced: ['receiptsRoot'] });
    calibration.addSample(1, [odd('0x7e'), odd('0x7e'), odd('0x7e')]);
    calibration.endSample();
    refuses(calibration, odd('0x7e'));
  });

  test('include unsigned transactions, which a receipts root does not prove', () => {
    const calibration = calibrated([whole, whole, whole]);
    refuses(calibration, provedOdd('unsigned'), /without a signature/);
    refuses(calibration, provedOdd('0x6a', 'unsigned'), /set chain\.unprovedTypes: \["unsigned"\]/);
  });

  test('include deposits without a source hash, which a node could have left out', () => {
    const calibration = calibrated([whole, whole, whole]);
    refuses(calibration, provedOdd('0x7e'), /set chain\.unprovedTypes: \["0x7e"\]/);
    const told = calibrated([whole, whole, whole], { unprovedTypes: ['0x7e'] });
    assert.equal(told.judge('block 7', provedOdd('0x7e')), false);
    const observing = calibrated([provedOdd('0x7e'), whole, whole, whole]);
    assert.equal(observing.judge('block 7', provedOdd('0x7e')), false);
  });

  test('are accepted if the operator lists them, on Ethereum too', () => {
    for (const chainId of [31_337, 1]) {
      const calibration = createCalibration({
        ...{ ...fresh, chainId, enforced: ['receiptsRoot'] },
        unprovedTypes: ['0x7e'],
      });
      assert.equal(calibration.judge('block 7', odd('0x7e')), false);
      refuses(calibration, odd('0x7d'));
      assert.deepEqual([calibration.observedTypes(), calibration.unprovedTypes()], [[], ['0x7e']]);
    }
  });

  test('are accepted if another process has observed them', () => {
    const calibration = calibrated([whole, whole, whole]);
    calibration.enforce([], ['0x7e']);
    assert.equal(calibration.judge('block 7', odd('0x7e')), false);
  });

  test('are observed only if a quorum of several nodes has them, even with chain.quorum 1', () => {
    const calibration = createCalibration({ ...fresh, nodeCount: 3, quorum: 1 });
    assert.equal(
      calibration.addSample(1, [odd('0x7e'), whole, whole, whole]),
      false,
      'another node is asked',
    );
    assert.equal(calibration.addSample(2, [whole, whole, whole, whole]), true);
    calibration.endSample();
    refuses(calibration, odd('0x7e'));
    assert.equal(calibration.needsSample([]), true, 'all nodes are asked about the refused block');
    for (let node = 1; node <= 3; node += 1)
      assert.equal(calibration.addSample(node, node === 1 ? [whole] : [odd('0x7e')]), false);
    calibration.endSample();
    assert.equal(calibration.judge('block 7', odd('0x7e')), false);
  });

  test('do not make one lying node have all nodes sampled for each block', () => {
    const calibration = calibrated([whole, whole, whole], { nodeCount: 3, enforced: ['receiptsRoot'] });
    let samples = 0;
    for (let block = 0; block < 1_000; block += 1) {
      refuses(calibration, odd('0x7e'));
      if (!calibration.needsSample([])) continue;
      samples += 1;
      calibration.addSample(1, [odd('0x7e')]);
      calibration.addSample(2, [whole]);
      calibration.endSample();
    }
    assert.equal(samples, 10);
  });

  test('do not excuse the other transactions from having their hashes', () => {
    const hashed: Checks = { ...provedOdd('0x6a'), transactionHashes: 'holds' };
    const calibration = calibrated([hashed, hashed, hashed]);
    assert.equal(calibration.states().transactionsRoot, 'calibrating');
    const changed: Checks = { ...hashed, transactionsRoot: 'fails', transactionHashes: 'fails' };
    refuses(calibration, changed, /the hash of a transaction does not hold/);
  });
});

test('strict refuses all blocks that are not proved, from the first one on', () => {
  const calibration = createCalibration({ ...fresh, mode: 'strict' });
  assert.equal(calibration.needsSample([]), false);
  assert.equal(calibration.judge('block 7', whole), true);
  assert.equal(calibration.judge('block 7', empty), true);
  refuses(calibration, withoutReceipts);
  refuses(calibration, odd('0x7e'), /its transactions root cannot be computed/);
});

test('off stays off, whatever other processes have observed', () => {
  const calibration = createCalibration({ ...fresh, mode: 'off' });
  calibration.enforce(['headerHash'], []);
  assert.equal(calibration.states().headerHash, 'off');
});
