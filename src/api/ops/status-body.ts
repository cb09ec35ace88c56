/**
 * The schema of the body of /status, which `chainbell status` prints too.
 */
import { type Static, type TSchema, Type } from 'typebox';
import { PENDING_COUNTED_MAX } from '../../store/delivery/pending.ts';
import { deploymentExample, deploymentFields } from './deployment-body.ts';

const orNull = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
const Time = Type.String({ description: 'ISO 8601 UTC.' });
const counted = { description: `Counted up to ${PENDING_COUNTED_MAX}.` };
const CheckStateText = Type.Enum(['enforced', 'calibrating', 'off']);

const Price = Type.Object({
  asset: Type.String(),
  price: orNull(Type.String({ description: 'In USD, with all digits.' })),
  age_seconds: orNull(Type.Number()),
  stale: Type.Boolean({
    description:
      'The price is missing or older than `maxAgeSeconds`, so the API returns null. Without `maxAgeSeconds`: older than 10 minutes or two rounds, whichever is longer, but the API still returns it.',
  }),
  sources: Type.Array(
    Type.Object({
      source: Type.String(),
      verdict: Type.Enum(['used', 'outlier', 'stale', 'not_positive', 'uncertain', 'failed']),
      price: orNull(Type.String()),
      observed_at: orNull(Time),
      message: orNull(Type.String()),
    }),
    { description: 'The result of each source in the newest round.' },
  ),
});

const Pair = Type.Object({
  id: Type.Integer(),
  name: Type.String(),
  price: orNull(Type.String({ description: '`latestPrice` with all digits.' })),
  updated_at: orNull(Time),
  price_deviation: orNull(
    Type.Number({ description: 'Deviation of the price from the price of the feeds. 0.02 means 2 % above.' }),
  ),
  lp_deviation: orNull(
    Type.Number({
      description: 'Deviation of the LP token price computed from both reserves from its fair price.',
    }),
  ),
  deviates: Type.Boolean({ description: '`lp_deviation` is above 0.02, so the pool may be manipulated.' }),
  volume_complete: Type.Boolean({
    description:
      'False while blocks of the past 24 hours have yet to be read, or the newest stored block is older than 5 minutes and not known to be the head. `vol24h` then covers only the blocks read so far.',
  }),
});

const HashText = Type.String({ description: 'Block hash.' });

const Node = Type.Object({
  name: Type.String({ description: 'The configuration key of the node, for example `chain.rpc[0]`.' }),
  state: Type.Enum(['ok', 'slow', 'behind', 'limited', 'failing', 'disagrees', 'wrong_chain', 'unknown']),
  head: orNull(Type.Integer()),
  blocks_behind: orNull(
    Type.Integer({
      description:
        'Blocks between its head and the head of the others, if the others passed its head more than 30 s ago. Otherwise null.',
    }),
  ),
  vote: orNull(
    Type.Object(
      { number: Type.Integer(), hash: HashText },
      { description: 'The head that counts as the vote of this node. Null if it has not voted.' },
    ),
  ),
  disagreement: orNull(
    Type.Object(
      { number: Type.Integer(), hash: HashText, stored_hash: HashText, since: Time },
      {
        description:
          'The first stored block that differs on this node. Until the node agrees, it is polled but not used.',
      },
    ),
  ),
  outvoted_count: Type.Integer({
    description:
      'How often, since the start, a quorum reported a different block at the height of the head of this node.',
  }),
  outvoted: orNull(
    Type.Object(
      { number: Type.Integer(), hash: HashText, corroborated_hash: HashText, at: Time },
      { description: 'The newest such case, with the block that a quorum reported instead.' },
    ),
  ),
  disproved_count: Type.Integer({
    description:
      'How many of its answers about blocks (contents, senders, traces) a proof or a quorum of other nodes contradicted since the start.',
  }),
  disproved: orNull(
    Type.Object({ message: Type.String(), at: Time }, { description: 'The newest such case.' }),
  ),
  error: orNull(Type.String()),
  capabilities: orNull(
    Type.Object({
      batch: Type.Boolean(),
      block_receipts: Type.Boolean(),
      finalized_tag: Type.Boolean(),
      traces: Type.String({ description: 'The trace method, or `none`.' }),
    }),
  ),
  retry_at: orNull(
    Type.String({ description: 'Not used until then after a failure, while other nodes answer.' }),
  ),
  slow_until: orNull(Type.String({ description: 'Other nodes are asked first until then.' })),
  hedges: Type.Integer({
    description: 'Requests sent to this node in addition to a slow one, since the start.',
  }),
  overtaken: Type.Integer({
    description: 'Requests for blocks that another node, asked in addition, answered first.',
  }),
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
      genesis_hash: orNull(Type.String({ description: 'Nodes with a different genesis block are refused.' })),
      head: orNull(
        Type.Integer({
          description:
            'The newest block whose hash a quorum of the nodes reports. It may be below the newest stored block. Without a quorum, its last value.',
        }),
      ),
      finalized: orNull(
        Type.Integer({ description: 'The newest stored block that a quorum reports as finalized.' }),
      ),
      corroborated: orNull(
        Type.Integer({ description: 'The newest stored block that a quorum has confirmed.' }),
      ),
    }),
    cursor: orNull(Type.Object({ number: Type.Integer(), mined_at: Time, stored_at: Time })),
    lag_blocks: orNull(
      Type.Integer({ description: 'Blocks between the newest stored block and the head, at least 0.' }),
    ),
    lag_seconds: orNull(
      Type.Number({
        description:
          'The age of the newest stored block while the head is ahead of it. Null if one of them is unknown.',
      }),
    ),
    problem: orNull(Type.Object({ message: Type.String(), since: Time })),
    write_failures: orNull(
      Type.Array(
        Type.Object({
          part: Type.String({ description: '`follower`, `delivery`, `prices` or `api`.' }),
          message: Type.String(),
          since: Time,
        }),
        {
          description:
            'Parts of any process whose last write failed. /readyz answers 503 meanwhile. Null while it is unknown.',
        },
      ),
    ),
    failing_work: orNull(
      Type.Array(
        Type.Object({
          work: Type.String({ description: 'For example `statistics`.' }),
          process: Type.String(),
          message: Type.String(),
          since: Time,
        }),
        {
          description:
            'Work that has failed or waited for 5 minutes on a process, or work beside blocks and webhooks that a bug stops. It is tried again. Null while it is unknown.',
        },
      ),
    ),
    clock_step: orNull(
      Type.Object(
        {
          seconds: Type.Number({ description: 'Negative if the clock was set back.' }),
          at: Time,
          pruning_resumes_at: Time,
        },
        { description: 'The last step of the shared clock of a minute or more. Null after a day.' },
      ),
    ),
    replica: orNull(
      Type.Object(
        {
          in_use: Type.Boolean({ description: 'Whether reads go to the replica.' }),
          lag_seconds: orNull(Type.Number({ description: 'Null while it is unknown.' })),
          message: orNull(Type.String({ description: 'Why the primary serves the reads.' })),
        },
        {
          description:
            'The replica that serves reads of this process. Null without database.replicaUrl or the role api.',
        },
      ),
    ),
    lost_shards: orNull(
      Type.Array(
        Type.Object({
          worker: Type.String({
            description:
              'Host and port, as Citus knows them, for the operator (`/api/admin/status`); `…` for others.',
          }),
          since: Time,
          block: Type.Integer({ description: 'The newest block that the shards have; -1 for none.' }),
          blocks: Type.Integer({ description: 'Blocks that wait for them.' }),
          transfers: Type.Integer({
            description: 'Transfers of these blocks that may be of watched addresses.',
          }),
        }),
        {
          description:
            'Citus: workers whose shards blocks leave out because they did not answer. `queue` and the counts do not include these shards.',
        },
      ),
    ),
    queue: orNull(
      Type.Object(
        {
          deferred: Type.Integer({
            description: `Notifications of watchers with many watched addresses for one chain address that have yet to be written. ${counted.description}`,
          }),
          held: Type.Integer(counted),
          waiting: Type.Integer(counted),
          due: Type.Integer(counted),
          oldest_due_age_seconds: Type.Number(),
          is_complete: Type.Boolean({
            description: `False if more than ${PENDING_COUNTED_MAX} are deferred, held or waiting. A count of ${PENDING_COUNTED_MAX} then means at least that many.`,
          }),
        },
        {
          description:
            'Null while it cannot be read. `cursor`, `prices`, `pairs` and the lists from the database are null in the same way.',
        },
      ),
    ),
    ...deploymentFields,
    watchers_over_pending_limit: orNull(
      Type.Integer({
        description:
          'Watchers with more pending notifications than `limits.pendingNotifications`, counted up to 100. Null if that limit is off.',
      }),
    ),
    orphaned: orNull(
      Type.Object(
        {
          count: Type.Integer(),
          since: orNull(Type.String({ description: 'When the first of these transfers was orphaned.' })),
        },
        {
          description:
            'Transfers that a receiver acknowledged and a reorg orphaned afterwards, without a removal notice. The delivery log lists them. Null while they cannot be read.',
        },
      ),
    ),
    prices: orNull(Type.Array(Price)),
    pairs: orNull(Type.Array(Pair)),
    quorum: orNull(
      Type.Object({
        nodes: Type.Integer({ description: 'HTTP nodes that vote.' }),
        needed: Type.Integer({ description: 'Votes needed to confirm a block at the moment.' }),
        votes: Type.Integer({ description: 'Nodes that report the head.' }),
        compares: Type.Enum(['hashes', 'contents'], {
          description:
            '`hashes`: block hashes are compared. `contents`: whole blocks too, because a proof check is not enforced.',
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
          transaction_hashes: CheckStateText,
          withdrawals_root: CheckStateText,
          receipts_root: CheckStateText,
        }),
        unproved_types: Type.Array(Type.String(), {
          description:
            'Types of transactions that are accepted without proof: `chain.unprovedTypes`, and those observed on the chain. Unsigned transactions are `unsigned`.',
        }),
      }),
    ),
    agreement: orNull(
      Type.Object(
        {
          quorum: Type.Integer({
            description: 'Nodes that must give equal answers about data that no hash covers.',
          }),
          internal_transfers: Type.Object({
            nodes: Type.Integer({ description: 'Nodes that can trace.' }),
            compared: Type.Boolean({
              description:
                'Whether several nodes confirm internal transfers. A single tracing node is trusted, also while the other one of two is silent.',
            }),
          }),
          outvoted: Type.Array(Type.Object({ node: Type.String(), message: Type.String(), at: Time }), {
            description:
              'Nodes whose answer a quorum or a signature contradicted since the start, each with the latest case. The message lists the stored blocks that the node may have falsified, and the command that repairs them.',
          }),
        },
        { description: 'Null if this process does not follow the chain.' },
      ),
    ),
    pushed_heads: Type.Boolean(),
    database: Type.Enum(['embedded', 'postgres']),
  },
  {
    title: 'Status',
    description:
      'docs/reference/health.md explains the states, and docs/reference/nodes.md explains quorum and nodes.',
  },
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
  ...{
    lag_blocks: 0,
    lag_seconds: 0,
    problem: null,
    write_failures: [],
    failing_work: [],
    clock_step: null,
    replica: null,
    lost_shards: [],
  },
  queue: { deferred: 0, held: 0, waiting: 2, due: 0, oldest_due_age_seconds: 0, is_complete: true },
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
      ...{ header_hash: 'enforced', transactions_root: 'enforced', transaction_hashes: 'calibrating' },
      ...{ withdrawals_root: 'enforced', receipts_root: 'enforced' },
    },
    unproved_types: [],
  },
  agreement: { quorum: 2, internal_transfers: { nodes: 2, compared: true }, outvoted: [] },
  pushed_heads: true,
  database: 'postgres',
};
