/**
 * A header that is what its hash commits to: so its parent hash can be relied on.
 */
import { disproof } from '../../core/fault.ts';
import type { BlockHeader } from '../../domain/block.ts';
import { parseHeader, record } from '../rpc/parse.ts';
import { headerHash } from './roots.ts';

/** @throws Fault `inconsistent` for a header whose hash does not recompute; `name` is the node's. */
export function readProvedHeader(name: string, json: unknown): BlockHeader {
  const header = parseHeader(json);
  if (headerHash(record(json, 'block')) === header.hash) return header;
  throw disproof(`${name} gave block ${header.number} (${header.hash}), whose header hash does not hold`);
}
