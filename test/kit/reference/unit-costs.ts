/**
 * Renders src/domain/unit-costs.ts from bench/results: every unit cost of the capacity model, with the file and the commit that it
 * was measured at.
 */
import { readFileSync } from 'node:fs';
import { medianOf } from '../../../bench/spread.ts';

type Row = Record<string, string | number>;
type Rows = { machine: Record<string, string | number>; conditions: Row; rows: Row[] };
type Runs = {
  machine: Record<string, string | number>;
  conditions: Row;
  runs: { contestant: string; what?: string; figures: Record<string, number> }[];
};
type Cost = { name: string; says: string; value: number; file: string; commit: string };

/** The module as text, formatted as Biome formats it. */
export function renderUnitCosts(root: string): string {
  const { processor, cores, memoryGiB, load } = read<Rows>(root, 'capacity').machine;
  const lines = listCosts(root).map(
    ({ name, says, value, file, commit }) =>
      `  /** ${says}. */\n  ${name}: { value: ${value}, file: '${file}', commit: '${commit}' },`,
  );
  return [
    '/**',
    ' * Made by `npm run generate` from bench/results: the measured unit costs of the capacity model. Not to be edited.',
    ' */',
    'export const unitCosts = {',
    `  machine: { processor: '${processor}', cores: ${cores}, memoryGiB: ${memoryGiB}, load: ${load} },`,
    ...lines,
    '} as const;',
    '',
  ].join('\n');
}

function listCosts(root: string): Cost[] {
  const rows = (file: string) => {
    const { machine, rows: all, conditions } = read<Rows>(root, file);
    return { commit: String(machine.commit), all, conditions };
  };
  const capacity = (name: string, what: string, says: string): Cost => {
    const { commit, all } = rows('capacity');
    return {
      name,
      says,
      value: numberOf(all.find((row) => row.what === what)?.value, what),
      file: 'capacity',
      commit,
    };
  };
  const fromRow = (
    name: string,
    says: string,
    file: string,
    isRow: (row: Row) => boolean,
    value: (row: Row) => unknown,
  ): Cost => {
    const { commit, all } = rows(file);
    const row = all.find(isRow);
    if (row === undefined) throw new Error(`${file}.json has no row for ${name}`);
    return { name, says, value: numberOf(value(row), name), file, commit };
  };
  const deliver = read<Record<string, Runs>>(root, 'deliver').http;
  const api = read<Runs>(root, 'api');
  const sent = figuresOf(deliver, ({ contestant }) => contestant === 'Chainbell, 20 lanes');
  const answered = figuresOf(api, ({ contestant, what }) => contestant === 'Chainbell' && what === 'price');
  const deliveries = numberOf(deliver?.conditions.rows, 'rows');
  const seconds = numberOf(api.conditions.seconds, 'seconds');
  return [
    capacity(
      'blockService',
      'block with one transaction, service',
      'Processor time of the service for a block, in microseconds',
    ),
    capacity(
      'blockDatabase',
      'block with one transaction, PostgreSQL',
      'Processor time of PostgreSQL for a block, in microseconds',
    ),
    capacity(
      'transactionService',
      'unwatched transaction, service',
      'Processor time of the service for a transaction in a block, in microseconds',
    ),
    capacity(
      'transactionDatabase',
      'unwatched transaction, PostgreSQL',
      'Processor time of PostgreSQL for a transaction in a block, in microseconds',
    ),
    capacity(
      'commitDatabase',
      'commit of a notification, PostgreSQL',
      'Processor time of PostgreSQL to store a notification, in microseconds',
    ),
    capacity(
      'settleDatabase',
      'lease, read and settlement of a webhook, PostgreSQL',
      'Processor time of PostgreSQL to lease, read and settle a webhook, in microseconds',
    ),
    fromRow(
      'statisticsProcessor',
      'Processor time to add an attempt up for statistics, in microseconds',
      'statistics',
      ({ what }) => what === 'attempts added up',
      ({ processorMicrosecondsEach }) => processorMicrosecondsEach,
    ),
    {
      ...{ name: 'deliveryService', file: 'deliver', commit: commitOf(deliver) },
      says: 'Processor time of a process for a webhook over HTTP, in microseconds',
      value: rounded((medianOf(sent.map((one) => one.cpuSeconds ?? Number.NaN)) / deliveries) * 1e6),
    },
    {
      ...{ name: 'cachedReadService', file: 'api', commit: String(api.machine.commit) },
      says: 'Processor time of a process for a cached API response of 56 bytes, in microseconds',
      value: rounded(
        medianOf(
          answered.map(
            (one) => ((one.cpuSeconds ?? Number.NaN) / seconds / (one.requestsPerSecond ?? 1)) * 1e6,
          ),
        ),
      ),
    },
    fromRow(
      'commits',
      'Notifications per second that one connection commits',
      'storage',
      ({ pageImages }) => pageImages === 'without',
      ({ commitsPerSecond }) => commitsPerSecond,
    ),
    {
      ...{ name: 'processDeliveries', file: 'deliver', commit: commitOf(deliver) },
      says: 'Webhooks per second that one process sends over HTTP',
      value: rounded(medianOf(sent.map((one) => one.deliveriesPerSecond ?? Number.NaN))),
    },
    {
      ...{ name: 'processReads', file: 'api', commit: String(api.machine.commit) },
      says: 'Cached API responses per second of one process',
      value: rounded(medianOf(answered.map((one) => one.requestsPerSecond ?? Number.NaN))),
    },
    fromRow(
      'embeddedBlocks',
      'Blocks with one webhook each per second with the embedded database',
      'memory-embedded',
      ({ what }) => what === 'following',
      ({ blocksPerSecond }) => Number.parseFloat(String(blocksPerSecond)),
    ),
    fromRow(
      'wal',
      'Bytes of WAL of a delivery, with page images',
      'storage',
      ({ pageImages }) => String(pageImages).startsWith('a checkpoint'),
      ({ walBytes }) => walBytes,
    ),
    capacity('notificationBytes', 'notification', 'Bytes of a notification with its indexes'),
    capacity('attemptBytes', 'attempt', 'Bytes of an attempt with its indexes'),
    capacity('addressBytes', 'watched address', 'Bytes of a watched address with its indexes'),
    fromRow(
      'filterBytes',
      "Bytes of a watched address in the follower's address filter",
      'filter',
      ({ measured }) => String(measured).startsWith('set of '),
      ({ mebibytes, measured }) =>
        rounded((numberOf(mebibytes, 'mebibytes') * 2 ** 20) / Number(/\d+/.exec(String(measured))?.[0])),
    ),
    capacity('processMemory', 'process with all roles', 'Resident memory of a process, in MiB'),
    capacity(
      'queueMemory',
      'delivery queue that sent just now',
      'Memory of a delivery queue that sent just now, in KiB',
    ),
    capacity(
      'receiverSockets',
      'connections to a receiver that answers',
      'Open connections to a receiver that answers',
    ),
  ];
}

function figuresOf(part: Runs | undefined, isRun: (run: Runs['runs'][number]) => boolean) {
  const found = (part?.runs ?? []).filter(isRun).map(({ figures }) => figures);
  if (found.length === 0) throw new Error('a result file without the runs of Chainbell');
  return found;
}

const commitOf = (part: Runs | undefined): string => String(part?.machine.commit);

function read<T>(root: string, file: string): T {
  return JSON.parse(readFileSync(`${root}/bench/results/${file}.json`, 'utf8')) as T;
}

function numberOf(value: unknown, what: string): number {
  if (typeof value !== 'number' || !Number.isFinite(value)) throw new Error(`no number: ${what}`);
  return value;
}

const rounded = (value: number): number => Number(value.toPrecision(4));
