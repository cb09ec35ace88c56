/**
 * `chainbell status`: how the running service fares, asked of the service itself.
 */
import type { Command } from 'commander';
import { Check } from 'typebox/value';
import { StatusBody } from '../api/ops/status-body.ts';
import type { Config } from '../config/schema.ts';
import { never, startAbort } from '../core/abort.ts';
import { Fault, messageOf } from '../core/fault.ts';
import { deploymentRows, processTables } from './deployment-tables.ts';
import { exitCodes, withConfigOrDemo, withFaults } from './exit.ts';
import { table } from './table.ts';

type Flags = { config?: string; url?: string; json?: boolean };

/** The service reads its database for this; one that takes longer is in trouble. */
const ANSWER_MS_MAX = 10_000;
/** What a process knows that reads the nodes itself. */
const ELSEWHERE = 'not known to this process: ask one with the role follower, with --url';
/** 0x and the first eight digits: enough to see which nodes agree. */
const SHORT_HASH_CHARACTERS = 10;

export function addStatusCommand(program: Command): void {
  program
    .command('status')
    .description('how the running service fares; exit code 75 when it is degraded or holding')
    .option('--config <file>', 'configuration file (default: chainbell.yaml when there is one)')
    .option('--url <url>', "the service's address (default: http.host and http.port of the configuration)")
    .option('--json', 'the body of /status as JSON on standard output')
    .addHelpText('after', '\nExample:\n  $ npm run --silent chainbell -- status --url http://127.0.0.1:8080')
    .action(async (flags: Flags) => {
      const { url } = flags;
      if (url === undefined) await withConfigOrDemo(flags, (config) => show(addressOf(config), flags));
      else await withFaults(() => show(url, flags));
    });
}

async function show(origin: string, flags: Flags): Promise<void> {
  const status = await readStatus(origin);
  process.stdout.write(flags.json === true ? `${JSON.stringify(status)}\n` : render(status));
  if (status.state !== 'ok') process.exitCode = exitCodes.tryAgain;
}

/** @throws Fault `unavailable` that says what to do. */
async function readStatus(origin: string): Promise<StatusBody> {
  const url = URL.parse('/status', origin);
  if (url === null)
    throw new Fault('not_found', `${origin} is not an address; write it like http://127.0.0.1:8080`);
  const limit = startAbort(never, ANSWER_MS_MAX);
  let response: Response;
  let text: string;
  try {
    response = await fetch(url, { signal: limit.signal });
    text = await response.text();
  } catch (error) {
    throw new Fault(
      'unavailable',
      `no service answers at ${url.origin} (${messageOf(error)}): start it with chainbell start, or name it with --url`,
    );
  } finally {
    limit.release();
  }
  if (response.status === 503)
    throw new Fault(
      'unavailable',
      `the service at ${url.origin} cannot reach its database: see ${url.origin}/readyz`,
    );
  const json = parseJson(text);
  if (response.status === 200 && Check(StatusBody, json)) return json;
  throw new Fault(
    'unavailable',
    `what answers at ${url.origin} (HTTP ${response.status}) is no Chainbell of this version: name another with --url`,
  );
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Where this machine reaches the configured API: a service that listens everywhere listens on loopback too. */
function addressOf({ http: { host, port } }: Config): string {
  if (port === 0)
    throw new Fault(
      'not_found',
      'http.port is 0, any free one: name the service with --url http://host:port',
    );
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host;
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`;
}

function render(status: StatusBody): string {
  const { chain, cursor, problem, proof, quorum, queue, prices, pairs, nodes, web_sockets: sockets } = status;
  const lag =
    status.lag_blocks === null || status.lag_blocks <= 0
      ? ''
      : `, ${status.lag_blocks} blocks and ${Math.round(status.lag_seconds ?? 0)} s behind`;
  const rows = [
    ['state', status.state],
    ...(problem === null ? [] : [['problem', `${problem.message} (since ${problem.since})`]]),
    ...status.write_failures.map(({ part, message, since }) => [
      'writes',
      `${part} has stored nothing since ${since}: ${message}`,
    ]),
    ['chain', `${chain.id}, head ${chain.head ?? 'unknown'}, final ${chain.finalized ?? 'unknown'}`],
    ['genesis', chain.genesis_hash ?? 'unknown'],
    [
      'cursor',
      cursor === null
        ? queue === null
          ? 'unknown'
          : 'no block stored yet'
        : `block ${cursor.number} of ${cursor.mined_at}${lag}`,
    ],
    [
      'queue',
      queue === null
        ? 'unknown'
        : `${queue.waiting} waiting, ${queue.due} due (the oldest for ${Math.round(queue.oldest_due_age_seconds)} s), ${queue.held} held${queue.held === 0 ? '' : ' until their block is confirmed or their turn comes'}`,
    ],
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
  const methods = nodes.flatMap(({ name, methods: own }) =>
    own.map(({ method, calls, errors, limited, p50_ms, p95_ms, last_error }) => [
      ...[name, method, String(calls), String(errors), String(limited), String(p50_ms ?? '-')],
      ...[String(p95_ms ?? '-'), last_error === null ? '' : `${last_error.at} ${last_error.message}`],
    ]),
  );
  const sources = prices.flatMap(({ asset, sources: own }) =>
    own.map(({ source, verdict, price, observed_at, message }) => [
      ...[asset, source, verdict, price ?? '-', observed_at ?? '-', message ?? ''],
    ]),
  );
  const parts = [
    table(rows),
    ...processTables(status),
    table([
      ['PRICE OF', 'USD', 'AGE', 'REMARK'],
      ...prices.map(({ asset, price, age_seconds: age, stale }) => [
        ...[asset, price ?? '-', age === null ? '-' : `${Math.round(age)} s`],
        stale ? (price === null ? 'none yet' : 'stale') : '',
      ]),
    ]),
    table([['PRICE OF', 'SOURCE', 'VERDICT', 'USD', 'OBSERVED', 'REMARK'], ...sources]),
    table([
      ['PAIR', 'NAME', 'PRICE', 'CHANGED', 'OFF FEEDS', 'LP OFF FAIR', 'REMARK'],
      ...pairs.map((pair) => [
        ...[String(pair.id), pair.name, pair.price ?? '-', pair.updated_at ?? '-'],
        ...[percent(pair.price_deviation), percent(pair.lp_deviation)],
        [
          ...(pair.deviates ? ['deviates: the pool may be pushed'] : []),
          ...(pair.volume_complete ? [] : ['the past 24 hours are being read']),
        ].join('; '),
      ]),
    ]),
    table([
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
          node.vote === null
            ? '-'
            : `${node.vote.number} (${node.vote.hash.slice(0, SHORT_HASH_CHARACTERS)})`,
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
    ]),
    table([['NODE', 'METHOD', 'CALLS', 'ERRORS', 'LIMITED', 'P50 MS', 'P95 MS', 'LAST ERROR'], ...methods]),
    table([
      ['WEBSOCKET', 'CONNECTED SINCE', 'HEADS', 'LAST CLOSED BECAUSE'],
      ...sockets.map((one) => [
        ...[one.name, one.connected_since ?? 'not connected', String(one.heads), one.last_reason ?? ''],
      ]),
    ]),
  ];
  return parts.filter((part) => part !== '').join('\n');
}

/** What keeps the node from being asked in its turn, and until when. */
function remarkOn(node: StatusBody['nodes'][number]): string {
  const { disagreement } = node;
  if (disagreement !== null)
    return `since block ${disagreement.number} it has ${disagreement.hash}, where ${disagreement.stored_hash} is stored`;
  if (node.state === 'behind') return `${node.blocks_behind} blocks behind the other nodes`;
  if (node.limited_until !== null) return `left alone until ${node.limited_until}: ${node.limit_reason}`;
  if (node.retry_at !== null) return `rests until ${node.retry_at}: ${node.error}`;
  if (node.state === 'slow' && node.slow_until === null) return 'owes the answer that tells its head';
  if (node.slow_until !== null) return `after the others until ${node.slow_until}`;
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
        : 'one node traces internal transfers, and nothing confirms them';
  const against = outvoted.map(({ node, message, at }) => `${node} was outvoted at ${at} (${message})`);
  const rule = quorum === 1 ? 'one node decides' : `${quorum} nodes must answer alike`;
  return [rule, confirmed, ...against].join('; ');
}

const percent = (ratio: number | null) => (ratio === null ? '-' : `${(ratio * 100).toFixed(2)} %`);

function describe(facts: Record<string, unknown>): string {
  return Object.entries(facts)
    .map(([name, value]) => `${name} ${value === true ? 'yes' : value === false ? 'no' : String(value)}`)
    .join(', ');
}
