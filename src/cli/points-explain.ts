/**
 * `chainbell points explain`: shows why a transaction earned its points, and why no more.
 */
import { type Command, InvalidArgumentError } from 'commander';
import type { Explanation } from '../app/explain-transaction.ts';
import type { Config } from '../config/schema.ts';
import { systemClock } from '../core/clock.ts';
import { Fault } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import { printableLines } from '../core/terminal-text.ts';
import { databasePlace, openForCommand, requireDatabase } from '../store/db/command-database.ts';
import { requireSchema } from '../store/db/migrate.ts';
import { withConfigOrDemo } from './exit.ts';
import { describeAward, describeLog } from './explained.ts';
import { unlessInterrupted } from './interrupt.ts';
import { addStoreCommand, type Flags, writeJson } from './secret-store.ts';

const HASH_DIGITS = 64;

export function addPointsExplainCommand(points: Command): void {
  addStoreCommand(
    points,
    'explain',
    "show a transaction's awards with their calculation, and each rule's verdict on each of its logs",
  )
    .argument('<hash>', 'hash of the transaction: 0x and 64 hexadecimal digits', parseHash)
    .addHelpText('after', '\nExample:\n  $ npm run --silent chainbell -- points explain 0x5c50…')
    .action((hash: Hash, flags: Flags) =>
      unlessInterrupted((signal) =>
        withConfigOrDemo(flags, (config) => explain(config, { hash, flags, signal })),
      ),
    );
}

async function explain(
  config: Config,
  { hash, flags, signal }: { hash: Hash; flags: Flags; signal: AbortSignal },
): Promise<void> {
  requireDatabase(databasePlace(config));
  const database = await openForCommand(databasePlace(config));
  try {
    await requireSchema(database, { mayCreate: false });
    const [{ explainTransaction }, { explanationJson }] = await Promise.all([
      import('../app/explain-transaction.ts'),
      import('../app/explanation-json.ts'),
    ]);
    const sources = { database, clock: systemClock(), signal };
    const explanation = await explainTransaction(config, hash, sources).catch((error: unknown) => {
      // An interrupted reading can fail with any Fault.
      if (error instanceof Fault) signal.throwIfAborted();
      throw error;
    });
    if (flags.json === true) writeJson(explanationJson(hash, explanation));
    else process.stdout.write(describe(explanation));
    reportMissing(hash, explanation);
  } finally {
    await database.close();
  }
}

function describe({ awards, transaction }: Explanation): string {
  const logs = 'logs' in transaction ? transaction.logs.map(describeLog) : [];
  return [...awards.map(describeAward), ...logs].join('\n');
}

/** Reports missing logs on standard error. @throws Fault if there are no awards to show either. */
function reportMissing(hash: Hash, { awards, transaction }: Explanation): void {
  if ('logs' in transaction) {
    const { succeeded, logs } = transaction;
    if (!succeeded) process.stderr.write('chainbell: the transaction failed, so it earns no points\n');
    else if (logs.length === 0) process.stderr.write('chainbell: the transaction has no logs\n');
    return;
  }
  const none = awards.length === 0;
  if (transaction.missing === 'unknown') {
    const message = `${transaction.message}. Check the hash, and that the nodes in chain.rpc are on this chain`;
    if (none) throw new Fault('not_found', `no award is stored for ${hash}, and ${message}`);
    process.stderr.write(printableLines([`chainbell: only stored awards are shown: ${message}`]));
    return;
  }
  const message = `its logs are not stored, and no node in chain.rpc returns them (${transaction.message})`;
  if (none)
    throw new Fault(
      'unavailable',
      `no award is stored for ${hash}; ${message}. Check that the nodes run, or add one to chain.rpc that serves old blocks`,
    );
  process.stderr.write(printableLines([`chainbell: only awards are shown: ${message}`]));
}

function parseHash(text: string): Hash {
  const digits = text.replace(/^0x/i, '').toLowerCase();
  if (!/^[0-9a-f]*$/.test(digits))
    throw new InvalidArgumentError('The hash of a transaction has hexadecimal digits only, after 0x.');
  if (digits.length !== HASH_DIGITS)
    throw new InvalidArgumentError(
      `The hash of a transaction has ${HASH_DIGITS} hexadecimal digits after 0x. This one has ${digits.length}.`,
    );
  return `0x${digits}`;
}
