/**
 * Operator routes about the chain and the program: the full status, reorgs, the configuration, and why a transaction earned
 * points.
 */
import { type Static, type TSchema, Type } from 'typebox';
import { startAbort } from '../../core/abort.ts';
import { Fault } from '../../core/fault.ts';
import { listReorgs, ORPHANED_MAX, type StoredReorg } from '../../store/blocks/reorg-list.ts';
import type { Api, ApiOptions } from '../context.ts';
import { requireConnected } from '../http/connected.ts';
import { nextLink } from '../http/paging.ts';
import { querySchema } from '../http/parameters.ts';
import { answerOf, textOrNull } from '../notifications/log-json.ts';
import { pageParameters, parseHash, readPage } from '../notifications/log-query.ts';
import { STATUS_EXAMPLE, StatusBody } from '../ops/status-body.ts';

const REORGS = '/api/admin/reorgs';
/** Each asks the nodes for a block. */
const EXPLAINED_MAX = 2;
const EXPLAIN_MS_MAX = 30_000;

const Reorg = Type.Object(
  {
    at: Type.String(),
    from_block: Type.Integer({ description: 'The first orphaned block.' }),
    to_block: Type.Integer({ description: 'The last orphaned block.' }),
    depth: Type.Integer({ description: 'Number of orphaned blocks.' }),
    old_hash: Type.String({ description: 'Hash of the first orphaned block.' }),
    new_hash: Type.Union([Type.String(), Type.Null()], {
      description: 'Hash of the block that replaced it. Null until it is stored.',
    }),
    notifications_orphaned: Type.Union([Type.Integer(), Type.Null()], {
      description: `Notifications whose transfers are still orphaned by it, counted up to ${ORPHANED_MAX}.`,
    }),
  },
  { title: 'Reorg' },
);
const Configuration = Type.Record(Type.String(), Type.Unknown());
const integerOrNull = Type.Union([Type.Integer(), Type.Null()]);
const Inputs = Type.Record(Type.String(), Type.String());
const Explanation = Type.Object(
  {
    hash: Type.String(),
    block_number: integerOrNull,
    block_hash: textOrNull,
    succeeded: Type.Union([Type.Boolean(), Type.Null()]),
    missing: Type.Union(
      [Type.Object({ what: Type.Enum(['no_node', 'unknown']), message: Type.String() }), Type.Null()],
      {
        description:
          'Why the logs are missing: no node returned them, or the nodes know no such transaction.',
      },
    ),
    awards: Type.Array(
      Type.Object({
        rule: Type.String(),
        version: Type.Integer(),
        category: Type.String(),
        role: Type.String(),
        user: Type.String(),
        points: Type.Number({ description: 'An exact number, whose digits a parser may lose.' }),
        awarded_at: Type.String(),
        hash: Type.String(),
        ordinal: Type.Integer(),
        block_number: integerOrNull,
        block_hash: textOrNull,
        inputs: Inputs,
      }),
    ),
    logs: Type.Union([
      Type.Array(
        Type.Object({
          ordinal: Type.Integer(),
          contract: Type.String(),
          topic: textOrNull,
          verdicts: Type.Array(
            Type.Object({
              rule: Type.String(),
              version: integerOrNull,
              what: Type.String(),
              message: Type.String(),
              inputs: Inputs,
            }),
          ),
        }),
      ),
      Type.Null(),
    ]),
  },
  { title: 'PointsExplanation' },
);
const Params = Type.Object({ hash: Type.String() });
/** Described only, because serializers would round exact numbers. */
const described = <T extends TSchema>(data: T) => answerOf(data)[200];

const hash = `0x${'9a'.repeat(32)}`;
const operations = {
  status: {
    summary: 'The state of following, delivery, prices and nodes, with host names',
    answer: described(StatusBody),
    description:
      'The body of `/status`, in which nodes, databases and price sources appear with their hosts. It has no keys and no paths of node URLs.',
    example: {
      success: true,
      data: {
        ...STATUS_EXAMPLE,
        problem: { message: 'https://node.example: 503', since: STATUS_EXAMPLE.time },
      },
    },
  },
  reorgs: {
    summary: 'List the reorgs that orphaned stored blocks, newest first',
    example: {
      success: true,
      data: [
        {
          ...{ at: '2026-01-31T12:00:00.000Z', from_block: 19_000_000, to_block: 19_000_001, depth: 2 },
          ...{ old_hash: hash, new_hash: `0x${'9b'.repeat(32)}`, notifications_orphaned: 0 },
        },
      ],
    },
    answerHeaders: { link: '`rel="next"` leads to the next page.' },
  },
  configuration: {
    summary: 'Show the effective configuration without secrets',
    answer: described(Configuration),
    description:
      'In the form of the configuration file, with every default, as `chainbell config print --json` prints it. Each process has its own.',
    example: {
      success: true,
      data: { chain: { id: 1, rpc: ['https://node.example/…'] }, secret: '[redacted]' },
    },
  },
  explain: {
    summary: 'Explain why a transaction earned its points, and why no more',
    answer: described(Explanation),
    description:
      "The stored awards of the transaction with their calculation, and each rule's verdict on each of its logs, which are read from a node.",
    example: {
      success: true,
      data: {
        ...{ hash, block_number: 19_000_000, block_hash: `0x${'9b'.repeat(32)}`, succeeded: true },
        ...{ missing: null, awards: [], logs: [] },
      },
    },
    errors: {
      404: 'No award is stored for the transaction, and the nodes do not know it',
      409: 'The nodes are on another chain than the configuration or the database',
      429: `${EXPLAINED_MAX} transactions are being explained. Try again later`,
    },
  },
};

export function addAdminChainRoutes(api: Api, { database, ops, operator }: ApiOptions): void {
  api.get('/api/admin/status', { config: { operation: operations.status } }, async () =>
    success(await ops.fullStatus()),
  );

  api.get(
    REORGS,
    {
      schema: { querystring: querySchema(pageParameters), response: answerOf(Type.Array(Reorg)) },
      config: { operation: operations.reorgs },
    },
    async ({ query }, reply) => {
      const page = readPage(query);
      const reorgs = await listReorgs(database, page);
      const last = reorgs.at(-1);
      if (last !== undefined && reorgs.length === page.limit)
        reply.header('link', nextLink(REORGS, { ...query, cursor: last.id }));
      return success(reorgs.map(reorgJson));
    },
  );

  api.get('/api/admin/configuration', { config: { operation: operations.configuration } }, async () =>
    success(operator.configuration()),
  );

  let explainedCount = 0;
  const closing = new AbortController();
  api.addHook('preClose', async () => closing.abort());
  api.get(
    '/api/admin/points/explain/:hash',
    { schema: { params: Params }, config: { operation: operations.explain } },
    async (request, reply) => {
      const txHash = parseHash(request.params.hash);
      if (txHash === undefined)
        throw new Fault('invalid', 'The hash of a transaction is 0x and 64 hexadecimal digits');
      if (explainedCount >= EXPLAINED_MAX) throw new Fault('limited', operations.explain.errors[429]);
      requireConnected(request);
      const limit = startAbort(closing.signal, EXPLAIN_MS_MAX);
      reply.raw.once('close', () => limit.abort());
      explainedCount += 1;
      try {
        const explanation = await operator.explain(txHash, limit.signal);
        if (explanation === undefined) throw new Fault('not_found', operations.explain.errors[404]);
        return success(explanation);
      } finally {
        explainedCount -= 1;
        limit.release();
      }
    },
  );
}

const reorgJson = (reorg: StoredReorg): Static<typeof Reorg> => ({
  ...{ at: reorg.at.toISOString(), from_block: reorg.fromBlock, to_block: reorg.toBlock, depth: reorg.depth },
  ...{ old_hash: reorg.oldHash, new_hash: reorg.newHash ?? null },
  notifications_orphaned: Math.min(reorg.notifications, ORPHANED_MAX),
});

const success = <T>(data: T) => ({ success: true as const, data });
