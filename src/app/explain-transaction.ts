/**
 * Implements `chainbell points explain`: reads the stored awards of a transaction, and its logs from a node, because logs are not
 * stored.
 */
import packageJson from '../../package.json' with { type: 'json' };
import { type ExplainedLog, explainLogs } from '../audit/explain.ts';
import type { Bundle } from '../chain/blocks/bundle.ts';
import { type ChainNodes, httpUrls } from '../chain/nodes/nodes.ts';
import { rulesOf } from '../config/point-rules.ts';
import type { Config } from '../config/schema.ts';
import { startAbort } from '../core/abort.ts';
import type { Clock } from '../core/clock.ts';
import { Fault, messageOf } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import { createMetrics } from '../core/metrics.ts';
import type { Award } from '../domain/award.ts';
import type { BlockHeader } from '../domain/block.ts';
import type { Rules } from '../domain/points/rules.ts';
import { createSenderNeeds } from '../ingest/points/activities.ts';
import { findBlockHash, findChain, findTip, requireChain } from '../store/blocks/blocks.ts';
import type { Database } from '../store/db/db.ts';
import { listAwards } from '../store/points/awards.ts';
import { openChain } from './chain-access.ts';
import { createProgramLog } from './program-log.ts';

export type Explanation = {
  awards: Award[];
  /** As read from a node, or the reason why it couldn't be read. */
  transaction:
    | { block: BlockHeader; succeeded: boolean; logs: ExplainedLog[] }
    | { missing: 'no_node' | 'unknown'; message: string };
};

/** A person waits for the result. */
const NODES_MS_MAX = 20_000;

/** @throws Fault `conflict` when the database or the nodes are of another chain than the configuration. */
export async function explainTransaction(
  config: Config,
  hash: Hash,
  { database, clock, signal }: { database: Database; clock: Clock; signal: AbortSignal },
): Promise<Explanation> {
  const awards = await listAwards(database, hash);
  const chain = await findChain(database);
  if (chain !== undefined) requireChain(chain, config.chain.id);
  const { nodes, close } = openChain(config, chain, {
    urls: httpUrls(config.chain.rpc),
    clock,
    // The result already contains what goes wrong.
    log: createProgramLog(config, { level: 'error' }),
    metrics: createMetrics(packageJson.version),
    onHead: () => {},
  });
  const limit = startAbort(signal, NODES_MS_MAX);
  try {
    if (chain !== undefined) nodes.pin({ chainId: chain.chainId, genesisHash: chain.genesisHash });
    const rules = rulesOf(config);
    const found = await findTransaction(nodes, hash, rules, limit.signal);
    if (found === undefined)
      return { awards, transaction: { missing: 'unknown', message: 'the nodes know no such transaction' } };
    const { transaction, earlier, block } = found;
    const notStored = await whyNotStored(database, block);
    const logs = await explainLogs(database, {
      ...{ rules, transaction, earlier, block, awards, notStored },
    });
    return { awards, transaction: { block, succeeded: transaction.succeeded, logs } };
  } catch (error) {
    if (!(error instanceof Fault) || error.code === 'conflict' || signal.aborted) throw error;
    return { awards, transaction: { missing: 'no_node', message: messageOf(error) } };
  } finally {
    limit.release();
    await close();
  }
}

/** `earlier`: the transactions before it in its block. */
type Found = { transaction: Bundle['transactions'][number]; earlier: Hash[]; block: BlockHeader };

/** Reads the whole block, and proves it as the follower does; undefined when no block contains the transaction. */
async function findTransaction(
  nodes: Pick<ChainNodes, 'identify' | 'ask' | 'bundles'>,
  hash: Hash,
  rules: Rules,
  signal: AbortSignal,
): Promise<Found | undefined> {
  await nodes.identify(signal);
  const blockHash = await nodes.ask(
    [{ method: 'eth_getTransactionReceipt', params: [hash] }],
    ([answer], name) => {
      if (answer?.ok !== true) throw new Fault('unavailable', `${name}: ${answer?.message ?? 'no answer'}`);
      return parseBlockHash(answer.result);
    },
    signal,
  );
  if (blockHash === undefined) return undefined;
  const needsSenders = createSenderNeeds(rules);
  const [bundle] = await nodes.bundles([blockHash], signal, { parts: 'without traces', needsSenders });
  const { transactions = [] } = bundle ?? {};
  const index = transactions.findIndex((one) => one.hash === hash);
  const earlier = transactions.slice(0, Math.max(0, index)).map((one) => one.hash);
  const transaction = transactions[index];
  return bundle && transaction && { transaction, earlier, block: bundle.header };
}

function parseBlockHash(receipt: unknown): Hash | undefined {
  const { blockHash } = Object(receipt) as { blockHash?: unknown };
  return typeof blockHash === 'string' && /^0x[0-9a-f]{64}$/.test(blockHash)
    ? `0x${blockHash.slice(2)}`
    : undefined;
}

/** Why the transaction's block, and therefore its awards, aren't stored; undefined if the block is stored. */
async function whyNotStored(database: Database, { number, hash }: BlockHeader): Promise<string | undefined> {
  const stored = await findBlockHash(database, number);
  if (stored === hash) return undefined;
  if (stored !== undefined)
    return `its block ${number} is on another branch than the stored one, perhaps just before a reorg`;
  const tip = await findTip(database);
  return tip !== undefined && tip.number > number
    ? `its block ${number} lies before the first one that was followed`
    : `its block ${number} is not stored yet`;
}
