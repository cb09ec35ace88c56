/**
 * `chainbell points explain`: why a transaction has earned what it has, and why not more.
 */
import { type Command, InvalidArgumentError } from 'commander';
import { type Explanation, explainTransaction } from '../app/explain-transaction.ts';
import type { Config } from '../config/schema.ts';
import { systemClock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import { openForCommand } from '../store/db/command-database.ts';
import { migrate } from '../store/db/migrate.ts';
import { withConfigOrDemo } from './exit.ts';
import { describeAward, describeLog, explanationJson } from './explained.ts';
import { untilInterrupted } from './interrupt.ts';
import { addStoreCommand, type Flags, writeJson } from './secret-store.ts';

export function addPointsExplainCommand(points: Command): void {
  addStoreCommand(
    points,
    'explain',
    'show the awards of a transaction and what each was calculated from, and of each log what every rule says',
  )
    .argument('<hash>', 'the transaction, 0x and 64 hexadecimal digits', parseHash)
    .addHelpText('after', '\nExample:\n  $ npm run --silent chainbell -- points explain 0x5c50…')
    .action((hash: Hash, flags: Flags) =>
      untilInterrupted((signal) =>
        withConfigOrDemo(flags, (config) => explain(config, { hash, flags, signal })),
      ),
    );
}

async function explain(
  config: Config,
  { hash, flags, signal }: { hash: Hash; flags: Flags; signal: AbortSignal },
): Promise<void> {
  const database = await openForCommand({ url: config.database.url, dataDir: config.dataDir });
  try {
    await migrate(database);
    const explanation = await explainTransaction(config, hash, { database, clock: systemClock(), signal });
    if (flags.json === true) writeJson(explanationJson(hash, explanation));
    else process.stdout.write(describe(explanation));
    complain(hash, explanation);
  } finally {
    await database.close();
  }
}

function describe({ awards, transaction }: Explanation): string {
  const logs = 'logs' in transaction ? transaction.logs.map(describeLog) : [];
  return [...awards.map(describeAward), ...logs].join('\n');
}

/** Says what is missing. @throws Fault when nothing could be said at all. */
function complain(hash: Hash, { awards, transaction }: Explanation): void {
  if ('logs' in transaction) {
    const { succeeded, logs } = transaction;
    if (!succeeded) process.stderr.write('chainbell: the transaction failed, and nothing of it counts\n');
    else if (logs.length === 0) process.stderr.write('chainbell: the transaction has no logs\n');
    return;
  }
  const none = awards.length === 0;
  if (transaction.missing === 'unknown') {
    const message = `${transaction.message}: check the hash, and that chain.rpc names nodes of this chain`;
    if (none) throw new Fault('not_found', `no award is stored for ${hash}, and ${message}`);
    process.stderr.write(`chainbell: only what is stored is shown: ${message}\n`);
    return;
  }
  const message = `its logs are not stored, and no node of chain.rpc gives them (${transaction.message})`;
  if (none) throw new Fault('unavailable', `no award is stored for ${hash}; ${message}: name one that does`);
  process.stderr.write(`chainbell: only awards are shown: ${message}\n`);
}

function parseHash(text: string): Hash {
  const digits = text.replace(/^0x/i, '').toLowerCase();
  if (!/^[0-9a-f]{64}$/.test(digits))
    throw new InvalidArgumentError('64 hexadecimal digits, with or without 0x');
  return `0x${digits}`;
}
