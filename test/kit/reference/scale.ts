/**
 * The tables of docs/explanation/scale.md, by the calculator.
 */
import { defaultLoad } from '../../../src/cli/capacity.ts';
import { percent, shown, shownBytes } from '../../../src/cli/capacity-tables.ts';
import { type Capacity, computeCapacity } from '../../../src/domain/capacity.ts';
import { unitCosts } from '../../../src/domain/unit-costs.ts';
import { markdownTable } from './table.ts';

const RATES = [1, 100, 5_000];
/** Deliveries for each transaction. */
const SHARES = [0.1, 1];
/** Chains with thousands of transactions per second have short blocks. */
const BLOCK_SECONDS = 1;
const ADDRESSES = [1e3, 1e4, 1e5, 1e6, 1e7, 1e8];

/** What each part of each rate costs, with the smallest number of addresses. */
export function renderLoads(): string {
  const rows = RATES.flatMap((tps) =>
    SHARES.map((share) => {
      const capacity = compute(tps, share, 1e3);
      const { load, parts, stored, steps, carriedBy, nextLimit } = capacity;
      const coresOf = (name: string) => shown(parts.find(({ part }) => part === name)?.cores ?? 0);
      const database = parts.find(({ part }) => part === 'database');
      const carrying = steps.find(({ step }) => step === carriedBy);
      return [
        ...[shown(tps), shown(load.deliveries)],
        ...[shown(database?.writes ?? 0), `${shownBytes(database?.walBytes ?? 0)}/s`],
        ...[
          shownBytes(stored.growthBytesPerDay),
          coresOf('follower'),
          coresOf('delivery'),
          coresOf('database'),
        ],
        ...[shown(database?.sockets ?? 0), describeStep(capacity), carrying?.takes ?? '–'],
        nextLimit === undefined ? '–' : `${nextLimit.of}, at ${shown(nextLimit.at)} ×`,
      ];
    }),
  );
  return markdownTable(
    [
      ...[
        'tx/s',
        'webhooks/s',
        'rows written/s',
        'WAL',
        'stored in a day',
        'follower, cores',
        'delivery, cores',
      ],
      ...['database, cores', 'database connections', 'smallest step', 'takes', 'next limit'],
    ],
    rows,
  );
}

/** What watched addresses add. They cost the same at every rate. */
export function renderAddresses(): string {
  return markdownTable(
    ['watched addresses', 'tables and indexes', 'address filter in each follower'],
    ADDRESSES.map((addresses) => [
      shown(addresses),
      shownBytes(compute(1, 0.1, addresses).stored.addressBytes),
      shownBytes(addresses * unitCosts.filterBytes.value),
    ]),
  );
}

/** The unit costs, with their files. */
export function renderCosts(): string {
  const { machine: _, ...costs } = unitCosts;
  return markdownTable(
    ['unit cost', 'value', 'result file', 'commit'],
    Object.entries(costs).map(([name, { value, file, commit }]) => [
      ...[`\`${name}\``, shown(value)],
      ...[`[${file}.json](../../bench/results/${file}.json)`, commit.slice(0, 8)],
    ]),
  );
}

const compute = (tps: number, share: number, addresses: number): Capacity =>
  computeCapacity({ ...defaultLoad, blockSeconds: BLOCK_SECONDS, tps, addresses, deliveries: tps * share });

function describeStep({ steps, carriedBy }: Capacity): string {
  if (carriedBy === undefined) {
    const over = (steps.at(-1)?.shares ?? []).filter(({ used }) => used > 0.5);
    return `none: ${over.map(({ of, used }) => `${of} ${percent(used)}`).join(', ')}`;
  }
  const isMeasured = steps.find(({ step }) => step === carriedBy)?.isMeasured;
  return isMeasured === true ? carriedBy : `${carriedBy} (without its overhead)`;
}
