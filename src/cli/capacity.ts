/**
 * `chainbell capacity`: what a load costs, which step of growth carries it, and where the next limit is. It reads no configuration
 * and no database.
 */
import { type Command, InvalidArgumentError } from 'commander';
import { computeCapacity, type Load } from '../domain/capacity.ts';
import { renderCapacity } from './capacity-tables.ts';

type Range = { min: number; max: number; isWhole?: true };

const ranges: Record<keyof Load, Range> = {
  tps: { min: 0, max: 1_000_000 },
  addresses: { min: 0, max: 10_000_000_000, isWhole: true },
  deliveries: { min: 0, max: 1_000_000 },
  blockSeconds: { min: 0.05, max: 600 },
  receivers: { min: 1, max: 10_000_000, isWhole: true },
  reads: { min: 0, max: 10_000_000 },
  days: { min: 1, max: 3_650, isWhole: true },
  databaseCores: { min: 1, max: 1_024, isWhole: true },
};

export const defaultLoad = {
  blockSeconds: 12,
  receivers: 100,
  reads: 10,
  days: 30,
  databaseCores: 8,
} as const satisfies Partial<Load>;

type Flags = Load & { json?: boolean };

export function addCapacityCommand(program: Command): void {
  program
    .command('capacity')
    .description('calculate what a load costs, which step of growth carries it, and the next limit')
    .requiredOption('--tps <number>', 'transactions of the chain per second', parserOf('tps'))
    .requiredOption('--addresses <number>', 'watched addresses', parserOf('addresses'))
    .requiredOption('--deliveries <number>', 'webhooks per second', parserOf('deliveries'))
    .option(
      '--block-seconds <number>',
      'seconds between blocks',
      parserOf('blockSeconds'),
      defaultLoad.blockSeconds,
    )
    .option('--receivers <number>', 'origins of webhook URLs', parserOf('receivers'), defaultLoad.receivers)
    .option(
      '--reads <number>',
      'API requests per second that the cache answers',
      parserOf('reads'),
      defaultLoad.reads,
    )
    .option('--days <number>', 'how long deliveries are kept', parserOf('days'), defaultLoad.days)
    .option(
      '--database-cores <number>',
      'cores of one database server',
      parserOf('databaseCores'),
      defaultLoad.databaseCores,
    )
    .option('--json', 'print the result as JSON to standard output')
    .addHelpText(
      'after',
      '\nExample:\n  $ npm run --silent chainbell -- capacity --tps 100 --addresses 1000000 --deliveries 10',
    )
    .action(({ json, ...load }: Flags) => {
      const capacity = computeCapacity(load);
      process.stdout.write(json === true ? `${JSON.stringify(capacity)}\n` : renderCapacity(capacity));
    });
}

function parserOf(name: keyof Load): (text: string) => number {
  const { min, max, isWhole } = ranges[name];
  return (text) => {
    const value = /^\d+(\.\d+)?$/.test(text) ? Number(text) : Number.NaN;
    if (!(value >= min && value <= max) || (isWhole && !Number.isInteger(value)))
      throw new InvalidArgumentError(`It must be a ${isWhole ? 'whole ' : ''}number from ${min} to ${max}.`);
    return value;
  };
}
