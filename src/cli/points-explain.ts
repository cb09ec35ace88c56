/**
 * `chainbell points explain`: why a transaction has earned what it has.
 */
import { type Command, InvalidArgumentError } from 'commander';
import type { Award } from '../core/award.ts';
import { decimalText, exactNumber } from '../core/decimal.ts';
import { Fault } from '../core/fault.ts';
import type { Hash } from '../core/hex.ts';
import { listAwards } from '../store/points.ts';
import { addStoreCommand, type Flags, withStore, writeJson } from './secret-store.ts';

export function addPointsExplainCommand(points: Command): void {
  addStoreCommand(points, 'explain', 'show the awards of a transaction and what each was calculated from')
    .argument('<hash>', 'the transaction, 0x and 64 hexadecimal digits', parseHash)
    .addHelpText('after', '\nExample:\n  $ npm run --silent chainbell -- points explain 0x5c50…')
    .action((hash: Hash, flags: Flags) =>
      withStore(flags, async ({ database }) => {
        const awards = await listAwards(database, hash);
        if (flags.json === true) writeJson(awards.map(toJson));
        else if (awards.length === 0) throw new Fault('not_found', `no award is stored for ${hash}`);
        else process.stdout.write(awards.map(describe).join('\n'));
      }),
    );
}

function parseHash(text: string): Hash {
  const digits = text.replace(/^0x/i, '').toLowerCase();
  if (!/^[0-9a-f]{64}$/.test(digits))
    throw new InvalidArgumentError('64 hexadecimal digits, with or without 0x');
  return `0x${digits}`;
}

function toJson({ block, points, awardedAt, txHash, ...award }: Award) {
  return {
    rule: award.rule,
    version: award.version,
    category: award.category,
    role: award.role,
    user: award.user,
    points: exactNumber(points),
    awarded_at: awardedAt.toISOString(),
    hash: txHash,
    ordinal: award.ordinal,
    block_number: block?.number ?? null,
    block_hash: block?.hash ?? null,
    inputs: award.inputs,
  };
}

/** What its keys in `inputs` say, in the order of the calculation. */
const STEPS: [prefix: string, meaning: (name: string) => string][] = [
  ['event', () => 'event'],
  ['contract', () => 'contract'],
  ['log', () => 'log of the transaction'],
  ['day', () => 'day'],
  ['arg.', (name) => `argument ${name}`],
  ['price.', (name) => `USD for one ${name}`],
  ['price_id.', (name) => `row of that price, ${name}`],
  ['computed', () => 'points by the rule'],
  ['multiplier.', (name) => `multiplier ${name}`],
  ['used.', (name) => `already given, ${name}`],
  ['cap.', (name) => `cap, ${name}`],
  ['referred', () => 'for referring'],
  ['points', () => 'points of the referred'],
  ['share', () => 'share of them'],
];
const LABEL_WIDTH = 26;

function describe({ rule, version, category, role, user, points, awardedAt, block, inputs }: Award): string {
  const entries = Object.entries(inputs);
  const steps = STEPS.flatMap(([prefix, meaning]) =>
    entries
      .filter(([key]) => (prefix.endsWith('.') ? key.startsWith(prefix) : key === prefix))
      .map(([key, value]) => [meaning(key.slice(prefix.length)), value]),
  );
  const known = ([key]: [string, string]) =>
    STEPS.some(([prefix]) => (prefix.endsWith('.') ? key.startsWith(prefix) : key === prefix));
  const lines = [
    ['user', role === 'referrer' ? `${user} (referrer)` : user],
    ['category', category],
    ['at', awardedAt.toISOString()],
    ['block', block === undefined ? 'imported' : `${block.number} ${block.hash}`],
    ...steps,
    ...entries.filter((entry) => !known(entry)),
    ['result', `${decimalText(points)} points`],
  ];
  const rows = lines.map(([label = '', value = '']) => `  ${label.padEnd(LABEL_WIDTH)}${value}\n`);
  return `${rule} version ${version}\n${rows.join('')}`;
}
