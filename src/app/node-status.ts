/**
 * Nodes and WebSockets in the body of /status.
 */
import type { SocketStatus } from '../chain/nodes/head-subscription.ts';
import type { NodeStatus } from '../chain/nodes/node.ts';

export function describeNode(node: NodeStatus) {
  const {
    name,
    state,
    head,
    blocksBehind,
    vote,
    disagreement,
    outvoted,
    error,
    capabilities,
    throttle,
    methods,
  } = node;
  const { last } = node.disproved;
  return {
    name,
    state,
    head: head ?? null,
    blocks_behind: blocksBehind ?? null,
    vote: vote === undefined ? null : { number: vote.number, hash: vote.hash },
    disagreement:
      disagreement === undefined
        ? null
        : {
            ...{ number: disagreement.number, hash: disagreement.hash },
            ...{ stored_hash: disagreement.storedHash, since: disagreement.since.toISOString() },
          },
    outvoted_count: node.outvotedCount,
    outvoted:
      outvoted === undefined
        ? null
        : {
            ...{ number: outvoted.number, hash: outvoted.hash },
            ...{ corroborated_hash: outvoted.corroboratedHash, at: outvoted.at.toISOString() },
          },
    disproved_count: node.disproved.count,
    disproved: last === undefined ? null : { message: last.message, at: last.at.toISOString() },
    error: error ?? null,
    capabilities:
      capabilities === undefined
        ? null
        : {
            batch: capabilities.batch,
            block_receipts: capabilities.blockReceipts,
            finalized_tag: capabilities.finalizedTag,
            traces: capabilities.traces,
          },
    retry_at: node.retryAt?.toISOString() ?? null,
    slow_until: node.slowUntil?.toISOString() ?? null,
    hedges: node.hedges,
    overtaken: node.overtaken,
    limited_until: throttle.limited?.until.toISOString() ?? null,
    limit_reason: throttle.limited?.reason ?? null,
    in_flight: throttle.inFlight,
    concurrency_max: throttle.concurrency,
    batch_calls_max: throttle.batchCallsMax ?? null,
    methods: methods.map(({ method, calls, errors, limited, p50Ms, p95Ms, lastError }) => ({
      ...{ method, calls, errors, limited, p50_ms: p50Ms ?? null, p95_ms: p95Ms ?? null },
      last_error:
        lastError === undefined ? null : { message: lastError.message, at: lastError.at.toISOString() },
    })),
  };
}

export function describeSocket({ name, connectedSince, heads, lastReason }: SocketStatus) {
  return {
    name,
    connected_since: connectedSince?.toISOString() ?? null,
    heads,
    last_reason: lastReason ?? null,
  };
}
