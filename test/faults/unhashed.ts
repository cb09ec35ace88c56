/**
 * A preferred node that lies about data that no hash covers: senders and internal transfers. Its blocks are otherwise right. Two
 * other nodes are honest.
 */
import assert from 'node:assert/strict';
import { encodeCall } from '../../devnet/contracts.ts';
import { readBalanceWei } from '../../devnet/wallet.ts';
import { runRepair } from '../../src/app/verification.ts';
import { createRepairProgress } from '../../src/audit/repair-plan.ts';
import { sql } from '../../src/store/db/sql.ts';
import { waitUntil } from '../kit/wait.ts';
import type { NodeFault } from './node-proxy.ts';
import { block, both, change, type Json, listOf, receipts } from './spoil.ts';
import type { Stage } from './stage.ts';
import { lieUntil, type Story } from './story.ts';

const STRANGER = `0x${'7'.repeat(40)}`;
/** Blocks that a restart must catch up with: more than the number that gets a full check. */
const BACKFILL_BLOCKS = 30;

/** In a reorg of this depth, only matching data is proved in some blocks. */
const REORG_BLOCKS = 20;

/** Forges the sender of a transaction, in the block and in its receipts. */
const forgeSenderOf = (index: number): NodeFault =>
  both(
    block((one) => ({ ...one, transactions: change(listOf(one.transactions), index, { from: STRANGER }) })),
    receipts((all) => change(all, index, { from: STRANGER })),
  );
/** Of the first payment. */
const forgedSender = forgeSenderOf(0);

/** Changes the frames below those of the transactions, in every format of traces. */
function traces(spoilCalls: (calls: Json[]) => Json[]): NodeFault {
  return {
    async answer(call, ask) {
      if (!call.method.startsWith('debug_trace') && call.method !== 'trace_block') return undefined;
      const { result } = await ask(call);
      const all = listOf(result);
      if (call.method === 'trace_block') {
        const inner = all.filter(isInner);
        return inner.length === 0
          ? undefined
          : { result: [...all.filter((one) => !isInner(one)), ...spoilCalls(inner)] };
      }
      const index = all.findIndex(({ result: root }) => listOf(root && (root as Json).calls).length > 0);
      const root = all[index]?.result as Json | undefined;
      if (root === undefined) return undefined;
      return { result: change(all, index, { result: { ...root, calls: spoilCalls(listOf(root.calls)) } }) };
    },
  };
}

const isInner = ({ traceAddress }: Json) => Array.isArray(traceAddress) && traceAddress.length > 0;

const omitted = traces(() => []);
/** Adds one wei to the amount. */
const invented = traces((calls) =>
  calls.map((call) => {
    const raised = (value: unknown) => `0x${(BigInt(String(value)) + 1n).toString(16)}`;
    const { action } = call;
    return action === undefined
      ? { ...call, value: raised(call.value) }
      : { ...call, action: { ...(action as Json), value: raised((action as Json).value) } };
  }),
);

type Lie = { name: string; fault: NodeFault };
const forged: Lie = { name: 'a sender forged in block and receipt', fault: forgedSender };
const altered: Lie = { name: 'an internal transfer altered', fault: invented };
const left: Lie = { name: 'an internal transfer omitted', fault: omitted };

const atHead = ({ name, fault }: Lie): Story => ({
  name: `${name}, at the head, by the first of three nodes`,
  nodes: 3,
  isPolled: true,
  async tell(stage) {
    const { settled, status } = stage;
    const [node] = stage.nodes;
    const isNamed = async () => {
      const said = JSON.stringify((await status()).nodes[0] ?? null);
      return node.struck() >= 3 && /false sender|other internal transfers/.test(said);
    };
    await lieUntil(stage, fault, isNamed, '/status to say of the first node that it lies');
    await settled();
    assert.equal((await status()).state, 'ok');
    node.mend();
  },
});

/** The first node tells the lie in a backfill. */
async function backfillWith(fault: Lie['fault'], stage: Stage): Promise<void> {
  await stage.settled();
  await stage.service.stop();
  for (let count = 0; count < BACKFILL_BLOCKS; count += 1) await stage.payBlock();
  stage.nodes[0].inject(fault);
  await stage.restart();
  await stage.settled();
}

/** Lies about transfers of watched addresses. Samples find other lies (test/ingest/full-checks.test.ts). */
const inBackfill = ({ name, fault }: Lie): Story => ({
  name: `${name}, in a backfill, by the first of three nodes`,
  nodes: 3,
  isPolled: true,
  async tell(stage) {
    await backfillWith(fault, stage);
    stage.nodes[0].mend();
  },
});

/** The token transfers of each block are the transactions 1 and 3. They have no value, and no watched address names their senders. */
const forgedUser = forgeSenderOf(1);

const forgedAward: Story = {
  name: 'the sender of a transaction without value forged for a points rule, in a backfill, by the first of three nodes',
  nodes: 3,
  isPolled: true,
  async sections(_chain, token) {
    return {
      points: {
        rules: [
          {
            ...{ id: 'pay', version: 1, type: 'event', category: 'trading', user: 'tx.from', points: '1' },
            source: {
              event: 'Transfer(address indexed from, address indexed to, uint256 value)',
              contracts: [token],
            },
          },
        ],
      },
    };
  },
  async tell(stage) {
    const [node] = stage.nodes;
    await backfillWith(forgedUser, stage);
    const users = await stage.service.database.query(
      sql`select '0x' || encode(user_address, 'hex') as user from point group by 1 order by 1 limit 10`,
    );
    // The first account minted the tokens.
    const [first, , , payer] = stage.chain.accounts;
    assert.deepEqual(users, [{ user: payer }, { user: first }]);
    assert.ok(node.struck() > 0, 'the node was not asked for the backfill');
    node.mend();
  },
};

/** Held blocks become old. After a restart such a block looks like a block of a backfill. */
const disputed: Story = {
  name: 'an internal transfer omitted by the first of two nodes: its block is held, however far the head moves and after a restart',
  nodes: 2,
  isPolled: true,
  async tell(stage) {
    const { status, payBlock } = stage;
    const [node] = stage.nodes;
    const held = async () => {
      const now = await status();
      const isDisputed = /these answer differently/.test(now.problem?.message ?? '');
      return now.state === 'holding' && isDisputed ? now : undefined;
    };
    node.inject(omitted);
    await stage.payUntil(async () => (await held()) !== undefined, 'the block to be held');
    const stored = (await held())?.cursor?.number;
    for (let count = 0; count < BACKFILL_BLOCKS; count += 1) await payBlock();
    const { number } = await stage.chain.head();
    const isHeldFarBelow = async () => {
      const now = await held();
      return now !== undefined && now.chain.head === number ? now : undefined;
    };
    const after = await waitUntil(isHeldFarBelow, { describe: 'the block to be held below the new head' });
    assert.equal(after.cursor?.number, stored);
    await stage.service.stop();
    await stage.restart();
    const again = await waitUntil(isHeldFarBelow, { describe: 'the block to be held after a restart' });
    assert.equal(again.cursor?.number, stored);
    node.mend();
    await stage.settled();
  },
};

/** Follows the instructions of the report, as operators do, while the node keeps lying. */
const reported: Story = {
  name: 'internal transfers omitted in a backfill, by the first of three nodes, and repaired as /status says',
  nodes: 3,
  isPolled: true,
  async tell(stage) {
    const [node] = stage.nodes;
    await stage.settled();
    // If a record is as young as the blocks, nothing shows that it existed before them.
    await stage.service.database.query(
      sql`update watched_address set created_at = created_at - interval '1 hour', updated_at = created_at - interval '1 hour'`,
    );
    await stage.service.stop();
    for (let count = 0; count < BACKFILL_BLOCKS; count += 1) await stage.payBlock();
    node.inject(omitted);
    await stage.restart();
    await stage.settled();
    // No block is doubtful, and no transfer lost, if the samples happened to include the first blocks of the backfill.
    const said = JSON.stringify((await stage.status()).agreement);
    const [, from, to] = /repair --from (\d+) --to (\d+) --dry-run/.exec(said) ?? [];
    if (from !== undefined && to !== undefined)
      await runRepair(stage.config, {
        ...{ from: Number(from), to: Number(to), signal: new AbortController().signal },
        ...{ onPlan: () => true, mayCreditTwice: false, onDissent() {}, onProgress() {} },
        progress: createRepairProgress(),
      });
    await stage.settled();
    node.mend();
  },
};

/** The new branch has the old payments in another block, where this node forges the sender of the first payment. */
const inReorg = (depth: number, which: string): Story => ({
  name: `a sender forged inside a reorg, ${which}, by the first of three nodes`,
  nodes: 3,
  isPolled: true,
  async tell({ chain, nodes: [node], payBlock, settled, oracle, happened }) {
    const paid = await payBlock();
    await chain.mine(depth - 1);
    await settled();
    await oracle.look();
    const raw = await Promise.all(paid.map((hash) => chain.rpc('eth_getRawTransactionByHash', [hash])));
    node.inject(forgedSender);
    await chain.alone(() => chain.rpc('anvil_reorg', [depth, raw.map((one) => [one, 0])]));
    happened.injected += 1;
    await chain.mine();
    await settled();
    assert.ok(node.struck() > 0, 'the node was not asked for the new branch');
    node.mend();
  },
});

/** Balances and prices that differ from the chain's. */
const falseContracts: NodeFault = {
  async answer(call, ask) {
    if (call.method === 'eth_getBalance') return { result: '0x7' };
    if (call.method !== 'eth_call') return undefined;
    const { result } = await ask(call);
    return typeof result === 'string' && result.length > 2
      ? { result: result.replaceAll('1', '2') }
      : undefined;
  },
};

const PRICE = 2_501n;

const contracts: Story = {
  name: 'false answers of contracts about supply and price, by the first of three nodes',
  nodes: 3,
  isPolled: true,
  async sections(chain) {
    const aggregator = await chain.deploy('Aggregator', 8);
    const values = [PRICE * 10n ** 8n, BigInt(Math.floor(Date.now() / 1000))];
    const input = encodeCall({ contract: 'Aggregator', method: 'tell', values });
    await chain.execute({ from: chain.accounts[0], to: aggregator, input });
    const source = { type: 'chainlink', address: aggregator, heartbeatSeconds: 3_600 } as const;
    return {
      supply: { initial: '1000000', locked: { vesting: { team: chain.accounts[0] } } },
      prices: { native: { everySeconds: 1, maxAgeSeconds: 600, sources: [source] } },
    };
  },
  async tell({ chain, nodes: [node], service, payUntil, settled, status }) {
    node.inject(falseContracts);
    const prices = async () => {
      const rows = await service.database.query<{ price: string }>(
        sql`select distinct price from price order by price limit 10`,
      );
      return rows.map(({ price }) => Number(price));
    };
    // Often enough that a price of each was taken.
    await payUntil(async () => node.struck() >= 8 && (await prices()).length > 0, 'the price to be read');
    assert.deepEqual(await prices(), [Number(PRICE)]);
    const response = await fetch(`${service.apiUrl}/api/native/supply-info`);
    const { raw } = (await response.json()) as { raw: { locked_supply_wei: string } };
    assert.equal(raw.locked_supply_wei, String(await readBalanceWei(chain, chain.accounts[0])));
    const { agreement } = await status();
    const isNamed = agreement?.outvoted.some(
      (one) => one.node === 'chain.rpc[0]' && /^eth_/.test(one.message),
    );
    assert.equal(isNamed, true, JSON.stringify(agreement));
    await settled();
    node.mend();
  },
};

export const unhashedStories: readonly Story[] = [
  ...[forged, altered, left].map(atHead),
  ...[forged, altered].map(inBackfill),
  forgedAward,
  disputed,
  reported,
  inReorg(3, 'close to the head'),
  inReorg(REORG_BLOCKS, 'below what is looked at in full'),
  contracts,
];
