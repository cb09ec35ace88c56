/**
 * Reads a header and proves that its fields have its hash, so that callers can rely on its parent hash.
 */
import { disproof } from '../../core/fault.ts';
import type { BlockHeader } from '../../domain/block.ts';
import { parseHeader, record } from '../rpc/parse.ts';
import { headerHash } from './roots.ts';

/** `name` is the node's name. @throws Fault `inconsistent` if the header's fields don't have its hash. */
export function readProvedHeader(name: string, json: unknown): BlockHeader {
  const header = parseHeader(json);
  if (headerHash(record(json, 'block')) === header.hash) return header;
  throw disproof(`${name} gave block ${header.number} (${header.hash}), whose header hash does not hold`);
}
