/**
 * Binds the database and the nodes to one chain, so that blocks of two chains are never mixed.
 */
import type { ChainNodes } from '../chain/nodes/nodes.ts';
import { findChain, insertChain, requireChain } from '../store/blocks/blocks.ts';
import type { Database } from '../store/db/db.ts';
import { adviseOnSilence } from './follow-faults.ts';

/**
 * Stores the chain's identity on the first start. Afterwards, nodes whose genesis block isn't the stored one are refused.
 * @returns the stored final block's number.
 * @throws Fault `conflict` when database, nodes and configuration belong to different chains.
 */
export async function pinChain(
  {
    database,
    nodes,
    chainId,
  }: { database: Database; nodes: Pick<ChainNodes, 'pin' | 'identify'>; chainId: number },
  signal: AbortSignal,
): Promise<{ finalizedNumber: number }> {
  const before = await findChain(database);
  if (before !== undefined) {
    requireChain(before, chainId);
    nodes.pin({ chainId: before.chainId, genesisHash: before.genesisHash });
  }
  const identity = await nodes.identify(signal).catch(adviseOnSilence);
  if (before === undefined) await insertChain(database, identity.chainId, identity.genesisHash);
  // Another process may have stored the identity first, so read it back.
  const stored = (await findChain(database)) ?? { ...identity, finalizedNumber: 0 };
  requireChain(stored, chainId);
  nodes.pin({ chainId: stored.chainId, genesisHash: stored.genesisHash ?? identity.genesisHash });
  return { finalizedNumber: stored.finalizedNumber };
}
