/**
 * Proof in the whole service: a real node's blocks are proved, and unproved data is reported or refused.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ConfigOverrides } from '../../src/config/load.ts';
import { findChain } from '../../src/store/blocks/blocks.ts';
import { sql } from '../../src/store/db/sql.ts';
import { startChain } from '../kit/anvil.ts';
import { createTestDatabase } from '../kit/database.ts';
import { freshAddress, startTestService, type TestService } from '../kit/service.ts';
import { waitUntil } from '../kit/wait.ts';

type Proof = { mode: string; checks: Record<string, string>; unproved_types: string[] };

for (const verify of ['auto', 'strict'] as const) {
  test(`blocks of a real node are proved, also during a reorg, and /status shows it (${verify})`, async () => {
    await using chain = await startChain();
    await using database = await createTestDatabase('postgres');
    await using service = await startTestService({ database, rpc: [chain.url], chain: { verify } });
    const [from, to] = chain.accounts;
    for (const valueWei of [1n, 2n, 3n, 4n]) await chain.transferNative({ from, to, valueWei });
    const token = await chain.deploy('DemoToken', 'Proof', 'PRF', 18);
    await chain.mintToken(token, { to: from, amount: 5n });
    await chain.transferToken(token, { from, to, amount: 5n });
    await service.inSync(chain);
    await chain.reorg(2, [{ from, to, valueWei: 6n, block: 1 }]);
    await chain.mine();
    await service.inSync(chain);
    assert.deepEqual(await unprovedNumbers(service), []);
    assert.deepEqual(await readProof(service), {
      ...{ mode: verify, checks: allOf('enforced', verify) },
      unproved_types: [],
    });
    const observed = verify === 'auto' ? ['headerHash', 'receiptsRoot', 'transactionsRoot'] : [];
    assert.deepEqual((await findChain(service.database))?.enforcedChecks, observed);
  });
}

test('after a restart, auto enforces the observed checks from the first block on', async () => {
  await using chain = await startChain();
  await using database = await createTestDatabase('postgres');
  const [from, to] = chain.accounts;
  for (const valueWei of [1n, 2n, 3n, 4n]) await chain.transferNative({ from, to, valueWei });
  const start = () => startTestService({ database, rpc: [chain.url] });
  {
    await using service = await start();
    await service.inSync(chain);
  }
  // No further block arrives, so no further check can be observed.
  await using service = await start();
  assert.deepEqual((await readProof(service)).checks, allOf('enforced', 'auto'));
});

test('off stores blocks without proof', async () => {
  await using chain = await startChain();
  await using database = await createTestDatabase('postgres');
  await using service = await startTestService({ database, rpc: [chain.url], chain: { verify: 'off' } });
  await chain.mine();
  await service.inSync(chain);
  assert.ok((await unprovedNumbers(service)).includes(1));
  assert.deepEqual(await readProof(service), {
    ...{ mode: 'off', checks: allOf('off', 'off') },
    unproved_types: [],
  });
});

test('an impersonated sender without a signature stops strict, and auto unless the operator accepts unsigned transactions', async () => {
  await using chain = await startChain();
  await using places = new AsyncDisposableStack();
  const [from, to] = chain.accounts;
  for (const valueWei of [1n, 2n, 3n]) await chain.transferNative({ from, to, valueWei });
  const start = async (own: NonNullable<ConfigOverrides['chain']>) => {
    const database = places.use(await createTestDatabase('postgres'));
    return places.use(
      await startTestService({ database, rpc: [chain.url], chain: { startBlock: 1, ...own } }),
    );
  };
  const service = await start({ unprovedTypes: ['unsigned'] });
  const auto = await start({});
  const strict = await start({ verify: 'strict' });
  await Promise.all([service.inSync(chain), auto.inSync(chain), strict.inSync(chain)]);
  const sender = freshAddress();
  await chain.rpc('anvil_setBalance', [sender, '0xde0b6b3a7640000']);
  await chain.rpc('anvil_impersonateAccount', [sender]);
  await chain.transferNative({ from: sender, to, valueWei: 4n });
  await service.inSync(chain);
  assert.deepEqual(await unprovedNumbers(service), [4]);
  for (const [held, reason] of [
    [auto, /without a signature.* set chain\.unprovedTypes: \["unsigned"\]/],
    [strict, /block 4 .* is not proved: its transactions root cannot be computed.* chain\.verify is strict/],
  ] as const) {
    const isHeld = async () => (await readStatus(held)).state === 'holding';
    await waitUntil(isHeld, { describe: 'the service to hold' });
    const { problem } = await readStatus(held);
    assert.match(problem?.message ?? '', reason);
  }
});

/** Anvil's blocks list no withdrawals, and Chainbell knows their types, so auto observes no check of either. */
const allOf = (state: string, mode: 'auto' | 'strict' | 'off') => ({
  ...{ header_hash: state, transactions_root: state, receipts_root: state },
  withdrawals_root: mode === 'auto' ? 'calibrating' : state,
  transaction_hashes: mode === 'auto' ? 'calibrating' : state,
});

async function unprovedNumbers({ database }: TestService): Promise<number[]> {
  const rows = await database.query<{ number: number }>(
    sql`select number from block where not proved order by number limit 100`,
  );
  return rows.map(({ number }) => number);
}

async function readStatus({
  apiUrl,
}: TestService): Promise<{ state: string; problem: { message: string } | null; proof: Proof }> {
  const response = await fetch(`${apiUrl}/status`);
  return (await response.json()) as { state: string; problem: { message: string } | null; proof: Proof };
}

async function readProof(service: TestService): Promise<Proof> {
  return (await readStatus(service)).proof;
}
