/**
 * The tables of `chainbell status`: a summary, then processes, prices, pairs, nodes and WebSockets.
 */
import type { StatusBody } from '../api/ops/status-body.ts';
import { counted } from '../core/plural.ts';
import { deploymentRows, processTable } from './deployment-tables.ts';
import { table } from './table.ts';

/** Shown for facts that only processes with the role follower know. One without the role api doesn't answer. */
const ELSEWHERE = 'unknown to this process. Use --url with a process that has the roles api and follower';
/** 0x and the first eight digits: enough to see which nodes agree. */
const SHORT_HASH_CHARACTERS = 10;

/** The tables that have rows, with an empty line between them. */
export function renderStatus(status: StatusBody): string {
  const tables = [
    table(summaryRows(status)),
    processTable(status.processes ?? []),
    ...priceTables(status),
    pairTable(status),
    nodeTable(status),
    methodTable(status),
    webSocketTable(status),
  ];
  return tables.filter((text) => text !== '').join('\n');
}

function summaryRows(status: StatusBody): string[][] {
  const { chain, problem, proof, quorum } = status;
  return [
    ['state', status.state],
    ...(problem === null ? [] : [['problem', `${problem.message} (since ${problem.since})`]]),
    ...(status.write_failures ?? []).map(({ part, message, since }) => [
      'writes',
      `${part} has stored nothing since ${since}: ${message}`,
    ]),
    ...(status.failing_work ?? []).map(({ message, since }) => ['work', `since ${since}: ${message}`]),
    ['chain', `${chain.id}, head ${chain.head ?? 'unknown'}, final ${chain.finalized ?? 'unknown'}`],
    ['genesis', chain.genesis_hash ?? 'unknown'],
    ['cursor', describeCursor(status)],
    ['queue', describeQueue(status.queue)],
    ...databaseRows(status),
    ...unknownRows(status),
    ...deploymentRows(status),
    [
      'quorum',
      quorum === null
        ? ELSEWHERE
        : `${quorum.needed} of ${quorum.nodes} nodes, by ${quorum.compares}; ${quorum.votes} ${quorum.votes === 1 ? 'names' : 'name'} the head`,
    ],
    ['proof', proof === null ? ELSEWHERE : `${proof.mode}: ${describe(proof.checks)}`],
    ['agreement', describeAgreement(status.agreement)],
    ['version', status.version],
  ];
}

/** The replica, lost shards and a step of the clock, where there are any. */
function databaseRows({ replica, lost_shards: lost, clock_step: step }: StatusBody): string[][] {
  return [
    ...(replica === null ? [] : [['replica', describeReplica(replica)]]),
    ...(lost ?? []).map(({ worker, since, block, blocks, transfers }) => [
      'lost',
      `worker ${worker}, since ${since}: its shards have ${block === -1 ? 'no block' : `blocks up to ${block}`} and miss ${counted(blocks, 'block')}, with up to ${counted(transfers, 'transfer')}`,
    ]),
    ...(step === null
      ? []
      : [
          [
            'clock',
            `was set ${step.seconds < 0 ? 'back' : 'forward'} by ${Math.round(Math.abs(step.seconds))} s at ${step.at}. Pruning resumes at ${step.pruning_resumes_at}`,
          ],
        ]),
  ];
}

function describeReplica({ in_use, lag_seconds: lag, message }: NonNullable<StatusBody['replica']>): string {
  const behind = lag === null ? '' : `, ${lag.toFixed(1)} s behind`;
  return in_use ? `serves reads${behind}` : `not used${behind}${message === null ? '' : `: ${message}`}`;
}

/** Lists that can't be read now. Without this row, their tables would look empty. */
const listed = [
  'processes',
  'missing',
  'failing_work',
  'write_failures',
  'lost_shards',
  'prices',
  'pairs',
] as const;

function unknownRows(status: StatusBody): string[][] {
  const unknown = listed.filter((name) => status[name] === null);
  return unknown.length === 0 ? [] : [['unknown', unknown.join(', ')]];
}

function describeCursor(status: StatusBody): string {
  const { cursor, queue, chain } = status;
  const lag =
    status.lag_blocks === null || status.lag_blocks <= 0
      ? ''
      : `, ${status.lag_blocks} blocks and ${Math.round(status.lag_seconds ?? 0)} s behind`;
  // It is null also while this process can't read it. Only the commit of a block sets `corroborated`.
  const isStarted = chain.corroborated !== null;
  return cursor === null
    ? queue === null || isStarted
      ? 'unknown'
      : 'no block stored yet'
    : `block ${cursor.number} of ${cursor.mined_at}${lag}`;
}

function describeQueue(queue: StatusBody['queue']): string {
  if (queue === null) return 'unknown';
  // Those at the limit of counting are the highest.
  const { deferred, held, waiting, due } = queue;
  const most = queue.is_complete ? Number.POSITIVE_INFINITY : Math.max(deferred, held, waiting, due);
  const shown = (count: number) => `${count.toLocaleString('en-US')}${count === most ? '+' : ''}`;
  const unwritten = deferred === 0 ? '' : `, ${shown(deferred)} yet to be written`;
  const oldest = due === 0 ? '' : ` (the oldest for ${Math.round(queue.oldest_due_age_seconds)} s)`;
  return `${shown(waiting)} waiting, ${shown(due)} due${oldest}, ${shown(held)} held${held === 0 ? '' : ' until their block is confirmed or earlier ones in strict order are delivered'}${unwritten}`;
}

function priceTables({ prices }: StatusBody): string[] {
  const known = prices ?? [];
  const sources = known.flatMap(({ asset, sources: own }) =>
    own.map(({ source, verdict, price, observed_at, message }) => [
      ...[asset, source, verdict, price ?? '-', observed_at ?? '-', message ?? ''],
    ]),
  );
  return [
    table([
      ['PRICE OF', 'USD', 'AGE', 'REMARK'],
      ...known.map(({ asset, price, age_seconds: age, stale }) => [
        ...[asset, price ?? '-', age === null ? '-' : `${Math.round(age)} s`],
        stale ? (price === null ? 'none yet' : 'stale') : '',
      ]),
    ]),
    table([['PRICE OF', 'SOURCE', 'VERDICT', 'USD', 'OBSERVED', 'REMARK'], ...sources]),
  ];
}

function pairTable({ pairs }: StatusBody): string {
  return table([
    ['PAIR', 'NAME', 'PRICE', 'CHANGED', 'OFF FEEDS', 'LP OFF FAIR', 'REMARK'],
    ...(pairs ?? []).map((pair) => [
      ...[String(pair.id), pair.name, pair.price ?? '-', pair.updated_at ?? '-'],
      ...[percent(pair.price_deviation), percent(pair.lp_deviation)],
      [
        ...(pair.deviates ? ['deviates: the pool may be manipulated'] : []),
        ...(pair.volume_complete ? [] : ['the last 24 hours are not complete']),
      ].join('; '),
    ]),
  ]);
}

function nodeTable({ nodes }: StatusBody): string {
  return table([
    [
      'NODE',
      'STATE',
      'HEAD',
      'VOTE',
      'OUTVOTED',
      'DISPROVED',
      'IN FLIGHT',
      'BATCH MAX',
      'HEDGES',
      'OVERTAKEN',
      'CAN',
      'REMARK',
    ],
    ...nodes.map((node) => [
      ...[node.name, node.state, String(node.head ?? '-')],
      ...[
        node.vote === null ? '-' : `${node.vote.number} (${node.vote.hash.slice(0, SHORT_HASH_CHARACTERS)})`,
      ],
      ...[String(node.outvoted_count), String(node.disproved_count)],
      ...[`${node.in_flight} of ${node.concurrency_max}`, String(node.batch_calls_max ?? '-')],
      ...[
        String(node.hedges),
        String(node.overtaken),
        node.capabilities === null ? '-' : describe(node.capabilities),
      ],
      remarkOn(node),
    ]),
  ]);
}

function methodTable({ nodes }: StatusBody): string {
  const methods = nodes.flatMap(({ name, methods: own }) =>
    own.map(({ method, calls, errors, limited, p50_ms, p95_ms, last_error }) => [
      ...[name, method, String(calls), String(errors), String(limited), String(p50_ms ?? '-')],
      ...[String(p95_ms ?? '-'), last_error === null ? '' : `${last_error.at} ${last_error.message}`],
    ]),
  );
  return table([
    ['NODE', 'METHOD', 'CALLS', 'ERRORS', 'LIMITED', 'P50 MS', 'P95 MS', 'LAST ERROR'],
    ...methods,
  ]);
}

function webSocketTable({ web_sockets: sockets }: StatusBody): string {
  return table([
    ['WEBSOCKET', 'CONNECTED SINCE', 'HEADS', 'LAST CLOSED BECAUSE'],
    ...sockets.map((one) => [
      ...[one.name, one.connected_since ?? 'not connected', String(one.heads), one.last_reason ?? ''],
    ]),
  ]);
}

/** Why the node is not used as usual, and until when. */
function remarkOn(node: StatusBody['nodes'][number]): string {
  const { disagreement } = node;
  if (disagreement !== null)
    return `since block ${disagreement.number} it has ${disagreement.hash}, where ${disagreement.stored_hash} is stored`;
  if (node.state === 'behind') return `${node.blocks_behind} blocks behind the other nodes`;
  if (node.limited_until !== null) return `not used until ${node.limited_until}: ${node.limit_reason}`;
  if (node.retry_at !== null) return `paused until ${node.retry_at}: ${node.error}`;
  if (node.state === 'slow' && node.slow_until === null) return 'has not answered with its head yet';
  if (node.slow_until !== null) return `used after the other nodes until ${node.slow_until}`;
  return node.error ?? '';
}

function describeAgreement(agreement: StatusBody['agreement']): string {
  if (agreement === null) return ELSEWHERE;
  const { quorum, internal_transfers: traces, outvoted } = agreement;
  const confirmed =
    traces.nodes === 0
      ? 'no node traces internal transfers'
      : traces.compared
        ? `${traces.nodes} nodes confirm internal transfers`
        : 'one node traces internal transfers, and no other node confirms them';
  const against = outvoted.map(({ node, message, at }) => `${node} was outvoted at ${at} (${message})`);
  const rule = quorum === 1 ? 'one node decides' : `${quorum} nodes must agree`;
  return [rule, confirmed, ...against].join('; ');
}

const percent = (ratio: number | null) => (ratio === null ? '-' : `${(ratio * 100).toFixed(2)} %`);

function describe(facts: Record<string, unknown>): string {
  return Object.entries(facts)
    .map(([name, value]) => `${name} ${value === true ? 'yes' : value === false ? 'no' : String(value)}`)
    .join(', ');
}
