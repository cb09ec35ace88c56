/**
 * The body of /status, as it is described, made and shown by `chainbell status`.
 */
import { type Static, type TSchema, Type } from 'typebox';
import { deploymentExample, deploymentFields } from './deployment-body.ts';

const orNull = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
const Time = Type.String({ description: 'ISO 8601 UTC.' });
const CheckStateText = Type.Enum(['enforced', 'calibrating', 'off']);

const Price = Type.Object({
  asset: Type.String(),
  price: orNull(Type.String({ description: 'USD, all digits.' })),
  age_seconds: orNull(Type.Number()),
  stale: Type.Boolean({
    description:
      'There is none, or it is older than maxAgeSeconds, and null in the API. Without maxAgeSeconds: older than 10 minutes and two rounds, and given nevertheless.',
  }),
  sources: Type.Array(
    Type.Object({
      source: Type.String(),
      verdict: Type.Enum(['used', 'outlier', 'stale', 'not_positive', 'uncertain', 'failed']),
      price: orNull(Type.String()),
      observed_at: orNull(Time),
      message: orNull(Type.String()),
    }),
    { description: 'What they said in the newest round.' },
  ),
});

const Pair = Type.Object({
  id: Type.Integer(),
  name: Type.String(),
  price: orNull(Type.String({ description: 'latestPrice, all digits.' })),
  updated_at: orNull(Time),
  price_deviation: orNull(
    Type.Number({ description: 'Of the price from that of the feeds; 0.02 is 2 % above.' }),
  ),
  lp_deviation: orNull(Type.Number({ description: 'Of the LP token by both reserves from its fair price.' })),
  deviates: Type.Boolean({ description: 'lp_deviation is above 0.02: somebody may push the pool.' }),
  volume_complete: Type.Boolean({
    description:
      'false while blocks of the past 24 hours are still to be read: vol24h is what was read so far.',
  }),
});

const HashText = Type.String({ description: 'Hash of a block.' });

const Node = Type.Object({
  name: Type.String({ description: 'Its place in the configuration, such as chain.rpc[0].' }),
  state: Type.Enum(['ok', 'slow', 'behind', 'limited', 'failing', 'disagrees', 'wrong_chain', 'unknown']),
  head: orNull(Type.Integer()),
  blocks_behind: orNull(
    Type.Integer({
      description:
        'How far its head is below those of the others, while it is one that they passed 30 s ago; else null.',
    }),
  ),
  vote: orNull(
    Type.Object(
      { number: Type.Integer(), hash: HashText },
      { description: 'The head that counts as the vote of this node; null when it gave none.' },
    ),
  ),
  disagreement: orNull(
    Type.Object(
      { number: Type.Integer(), hash: HashText, stored_hash: HashText, since: Time },
      {
        description: 'The first stored block that differs on this node. Until it agrees, it is only polled.',
      },
    ),
  ),
  outvoted_count: Type.Integer({
    description:
      'How often since the start a quorum named another block at the height of the head that this node named.',
  }),
  outvoted: orNull(
    Type.Object(
      { number: Type.Integer(), hash: HashText, corroborated_hash: HashText, at: Time },
      { description: 'The newest of them, and the block that a quorum named instead.' },
    ),
  ),
  disproved_count: Type.Integer({
    description:
      'How many answers about blocks (contents, senders, traces) a proof or a quorum of other nodes has contradicted since the start.',
  }),
  disproved: orNull(
    Type.Object({ message: Type.String(), at: Time }, { description: 'The newest of them.' }),
  ),
  error: orNull(Type.String()),
  capabilities: orNull(
    Type.Object({
      batch: Type.Boolean(),
      block_receipts: Type.Boolean(),
      finalized_tag: Type.Boolean(),
      traces: Type.String({ description: 'The method, or none.' }),
    }),
  ),
  retry_at: orNull(Type.String({ description: 'It rests after a failure until then, while others answer.' })),
  slow_until: orNull(Type.String({ description: 'Others are asked before it until then.' })),
  hedges: Type.Integer({ description: 'Requests that it was asked beside a slow node, since the start.' }),
  overtaken: Type.Integer({ description: 'Requests for blocks that one asked beside it answered first.' }),
  limited_until: orNull(Time),
  limit_reason: orNull(Type.String()),
  in_flight: Type.Integer(),
  concurrency_max: Type.Integer(),
  batch_calls_max: orNull(Type.Integer()),
  methods: Type.Array(
    Type.Object({
      method: Type.String(),
      calls: Type.Integer(),
      errors: Type.Integer(),
      limited: Type.Integer(),
      p50_ms: orNull(Type.Number()),
      p95_ms: orNull(Type.Number()),
      last_error: orNull(Type.Object({ message: Type.String(), at: Time })),
    }),
  ),
});

export const StatusBody = Type.Object(
  {
    version: Type.String(),
    time: Time,
    state: Type.Enum(['ok', 'degraded', 'holding']),
    chain: Type.Object({
      id: Type.Integer(),
      genesis_hash: orNull(Type.String({ description: 'Nodes with another one are refused.' })),
      head: orNull(
        Type.Integer({
          description:
            'The newest block whose hash a quorum of the nodes names, even below the newest stored one. Without a quorum, its last value.',
        }),
      ),
      finalized: orNull(Type.Integer({ description: 'The newest stored block that a quorum calls final.' })),
      corroborated: orNull(
        Type.Integer({ description: 'The newest stored block that a quorum was seen to have.' }),
      ),
    }),
    cursor: orNull(Type.Object({ number: Type.Integer(), mined_at: Time, stored_at: Time })),
    lag_blocks: orNull(
      Type.Integer({ description: 'How far the newest stored block is below the head, at least 0.' }),
    ),
    lag_seconds: orNull(
      Type.Number({
        description:
          'The age of the newest stored block while the head is ahead of it; null where one of them is unknown.',
      }),
    ),
    problem: orNull(Type.Object({ message: Type.String(), since: Time })),
    write_failures: Type.Array(
      Type.Object({
        part: Type.String({ description: 'follower, delivery, prices or api.' }),
        message: Type.String(),
        since: Time,
      }),
      { description: "Parts of all processes whose last write failed; /readyz isn't ready meanwhile." },
    ),
    clock_step: orNull(
      Type.Object(
        {
          seconds: Type.Number({ description: 'Below 0 when the clock was set back.' }),
          at: Time,
          pruning_resumes_at: Time,
        },
        { description: 'The last step of the shared clock; null a day later.' },
      ),
    ),
    queue: orNull(
      Type.Object(
        {
          deferred: Type.Integer({
            description: 'Notifications of watchers with many records for one address, still to be written.',
          }),
          held: Type.Integer(),
          waiting: Type.Integer(),
          due: Type.Integer(),
          oldest_due_age_seconds: Type.Number(),
        },
        { description: 'Null while the database cannot be read; cursor, prices and pairs are empty then.' },
      ),
    ),
    ...deploymentFields,
    watchers_over_pending_limit: orNull(
      Type.Integer({
        description:
          'Watchers with more pending notifications than limits.pendingNotifications, at most 100; null while that is off.',
      }),
    ),
    orphaned: orNull(
      Type.Object(
        {
          count: Type.Integer(),
          since: orNull(Type.String({ description: 'When the first of them was orphaned.' })),
        },
        {
          description:
            'Transfers that a receiver acknowledged, that a reorg has orphaned since, and that no removal notice took back. The delivery log names them. Null while the database cannot be read.',
        },
      ),
    ),
    prices: Type.Array(Price),
    pairs: Type.Array(Pair),
    quorum: orNull(
      Type.Object({
        nodes: Type.Integer({ description: 'HTTP nodes that vote.' }),
        needed: Type.Integer({ description: 'Votes that corroborate a block at the moment.' }),
        votes: Type.Integer({ description: 'Nodes that name the head.' }),
        compares: Type.Enum(['hashes', 'contents'], {
          description:
            'Whether block hashes are compared, or whole blocks too, because a check of blocks is not enforced.',
        }),
      }),
    ),
    nodes: Type.Array(Node),
    web_sockets: Type.Array(
      Type.Object({
        name: Type.String(),
        connected_since: orNull(Time),
        heads: Type.Integer(),
        last_reason: orNull(Type.String()),
      }),
    ),
    proof: orNull(
      Type.Object({
        mode: Type.Enum(['auto', 'strict', 'off']),
        checks: Type.Object({
          header_hash: CheckStateText,
          transactions_root: CheckStateText,
          withdrawals_root: CheckStateText,
          receipts_root: CheckStateText,
        }),
      }),
    ),
    agreement: orNull(
      Type.Object(
        {
          quorum: Type.Integer({ description: 'Nodes that must give equal answers where no hash decides.' }),
          internal_transfers: Type.Object({
            nodes: Type.Integer({ description: 'Nodes that can trace.' }),
            compared: Type.Boolean({
              description:
                'Whether several nodes confirm internal transfers. A single tracing node is believed.',
            }),
          }),
          outvoted: Type.Array(Type.Object({ node: Type.String(), message: Type.String(), at: Time }), {
            description:
              'Nodes whose answer a quorum or a signature contradicted since the start: the last time of each, and the stored blocks that a node which lied may have falsified, with the command that repairs them.',
          }),
        },
        { description: 'Null where this process does not follow the chain.' },
      ),
    ),
    pushed_heads: Type.Boolean(),
    database: Type.Enum(['embedded', 'postgres']),
  },
  { title: 'Status', description: 'docs/reference/health.md explains each field.' },
);
export type StatusBody = Static<typeof StatusBody>;

const AT = '2026-01-31T12:00:00.000Z';
export const STATUS_EXAMPLE: StatusBody = {
  version: '0.1.0',
  time: AT,
  state: 'ok',
  chain: {
    id: 1,
    genesis_hash: '0xd4e56740f876aef8c010b86a40d5f56745a118d0906a34e69aec8c0db1cb8fa3',
    ...{ head: 24_000_000, finalized: 23_999_920, corroborated: 24_000_000 },
  },
  cursor: { number: 24_000_000, mined_at: AT, stored_at: AT },
  ...{ lag_blocks: 0, lag_seconds: 0, problem: null, write_failures: [], clock_step: null },
  queue: { deferred: 0, held: 0, waiting: 2, due: 0, oldest_due_age_seconds: 0 },
  ...deploymentExample,
  watchers_over_pending_limit: 0,
  orphaned: { count: 0, since: null },
  prices: [
    {
      ...{ asset: 'ETH', price: '2500.25', age_seconds: 12.5, stale: false },
      sources: [
        { source: 'binance:ETHUSDT', verdict: 'used', price: '2500.25', observed_at: AT, message: null },
      ],
    },
  ],
  pairs: [
    {
      ...{ id: 2, name: 'USDT/ETH', price: '2510', updated_at: AT },
      ...{ price_deviation: 0.0039, lp_deviation: 0.000002, deviates: false, volume_complete: true },
    },
  ],
  quorum: { nodes: 3, needed: 2, votes: 3, compares: 'hashes' },
  nodes: [],
  web_sockets: [],
  proof: {
    mode: 'auto',
    checks: {
      ...{ header_hash: 'enforced', transactions_root: 'enforced' },
      ...{ withdrawals_root: 'enforced', receipts_root: 'enforced' },
    },
  },
  agreement: { quorum: 2, internal_transfers: { nodes: 2, compared: true }, outvoted: [] },
  pushed_heads: true,
  database: 'postgres',
};
